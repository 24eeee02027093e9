//! One operation over every manager of a map, side by side, with every outcome kept.

use std::{collections::BTreeMap, future::Future, num::NonZeroUsize, sync::Arc};

use tokio::sync::Semaphore;

/// The outcomes by manager key.
pub type Outcomes<T> = BTreeMap<String, T>;

/// Runs `operation` for each item, at most `max_parallel` at a time, and waits for all: one manager's failure neither stops nor
/// hides another's.
///
/// Dropping the future drops every operation.
pub async fn for_each<I, T, F>(
    items: BTreeMap<String, I>,
    max_parallel: NonZeroUsize,
    operation: impl Fn(String, I) -> F,
) -> Outcomes<T>
where
    F: Future<Output = T>,
{
    let slots = Arc::new(Semaphore::new(max_parallel.get()));
    let running = items.into_iter().map(|(key, item)| {
        let slots = slots.clone();
        let work = operation(key.clone(), item);
        async move {
            // The semaphore is never closed, so an error here cannot be; without a permit the work would still be right.
            let _permit = slots.acquire().await.ok();
            (key, work.await)
        }
    });
    futures::future::join_all(running).await.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test(start_paused = true)]
    async fn every_outcome_is_kept_and_the_limit_holds() {
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let items = (0..20).map(|n| (format!("m{n:02}"), n)).collect();
        let outcomes = for_each(items, NonZeroUsize::new(3).unwrap(), |_, n| {
            let (now, most) = (&now, &most);
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                now.fetch_sub(1, Ordering::SeqCst);
                if n % 2 == 0 { Ok(n) } else { Err(n) }
            }
        })
        .await;
        assert_eq!(outcomes.len(), 20);
        assert_eq!(outcomes.values().filter(|o| o.is_err()).count(), 10);
        assert_eq!(most.load(Ordering::SeqCst), 3);
    }
}
