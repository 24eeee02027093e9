//! One operation for each runner manager of a map, in parallel.

use std::{collections::BTreeMap, future::Future};

pub(crate) type Outcomes<T> = BTreeMap<String, T>;

/// Runs `operation` for all items in parallel, and waits for all: a failure does not stop the others.
///
/// There is no limit, because operations mostly wait. The transport limits the parallel handshakes.
///
/// Dropping the future drops every operation.
pub(crate) async fn for_each<I, T, F>(
    items: BTreeMap<String, I>,
    operation: impl Fn(String, I) -> F,
) -> Outcomes<T>
where
    F: Future<Output = T>,
{
    let running = items.into_iter().map(|(key, item)| {
        let work = operation(key.clone(), item);
        async move { (key, work.await) }
    });
    futures::future::join_all(running).await.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use tokio::time::{Duration, Instant, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn all_outcomes_are_kept_and_waits_run_in_parallel() {
        let start = Instant::now();
        let items = (0..20).map(|n| (format!("m{n:02}"), n)).collect();
        let outcomes = for_each(items, |_, n| async move {
            sleep(Duration::from_secs(10)).await;
            if n % 2 == 0 { Ok(n) } else { Err(n) }
        })
        .await;
        assert_eq!(outcomes.len(), 20);
        assert_eq!(outcomes.values().filter(|o| o.is_err()).count(), 10);
        assert_eq!(start.elapsed().as_secs(), 10);
    }
}
