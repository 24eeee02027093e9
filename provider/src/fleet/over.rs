//! One operation over many runner managers.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::{Instant, timeout_at};

use super::failure::Failure;
use crate::{
    client::{ClientError, Snapshot, Wrapper as _},
    manager::{InvalidManager, Manager},
};

/// The runner managers of a map by key. An entry that cannot be used is one whose value became known only in the apply, or an edited state.
pub(crate) type Managers = BTreeMap<String, Result<Manager, InvalidManager>>;

/// The outcome for each runner manager, by its key.
pub(crate) type Outcomes<T> = BTreeMap<String, T>;

/// Time for a read to report its error after the deadline.
const ERROR_GRACE: Duration = Duration::from_secs(1);

/// Runs `operation` for all items in parallel, and waits for all: a failure does not stop the others.
///
/// There is no limit, because operations mostly wait. The connector limits the parallel handshakes.
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

/// As [`for_each`], for runner managers. One that cannot be used fails.
pub(crate) async fn over<T, P, F>(
    managers: Managers,
    operation: impl Fn(Manager) -> F,
) -> Outcomes<Result<T, Failure<P>>>
where
    F: Future<Output = Result<T, Failure<P>>>,
{
    for_each(managers, |_, manager| {
        let work = manager.map(&operation);
        async move { work?.await }
    })
    .await
}

/// Why the status of a runner manager was not read.
#[derive(Debug)]
pub(crate) enum Unread {
    Invalid(InvalidManager),
    Failed(ClientError),
    /// The deadline has cut the call off, with this error.
    CutOff(ClientError),
    /// Nothing is known at the deadline.
    Late,
}

/// Reads the status of all runner managers once, in parallel, until the deadline.
pub(crate) async fn read_all(managers: Managers, deadline: Instant) -> Outcomes<Result<Snapshot, Unread>> {
    for_each(managers, |_, manager| async move {
        let client = manager.map_err(Unread::Invalid)?.client().until(deadline);
        match timeout_at(deadline + ERROR_GRACE, client.read_status()).await {
            Ok(Err(error)) if Instant::now() >= deadline => Err(Unread::CutOff(error)),
            Ok(status) => status.map_err(Unread::Failed),
            Err(_) => Err(Unread::Late),
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

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
