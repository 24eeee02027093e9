//! Control calls run in separate tasks. hyper drops the future of a call when its client resets the stream, closes the connection or
//! reaches its deadline, but an accepted change must still be executed.

use crate::supervise::log_key as key;
use tonic::Status;
use tracing::error;

/// Runs `work` to completion, even if the future that waits for it is dropped.
pub(super) async fn carry_out<T: Send + 'static>(
    work: impl Future<Output = Result<T, Status>> + Send + 'static,
) -> Result<T, Status> {
    match tokio::spawn(work).await {
        Ok(result) => result,
        Err(panic) => {
            error!(
                { key::PANIC } = %panic,
                "control call panicked; this is a bug in grit-wrapper, please report it"
            );
            Err(Status::internal("the wrapper failed while executing the call; see the wrapper's log"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use tokio::{sync::Notify, time::timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn detached_work_continues_after_waiter_is_dropped() {
        let done = Arc::new(Notify::new());
        let work = {
            let done = Arc::clone(&done);
            async move {
                tokio::time::sleep(Duration::from_secs(5)).await;
                done.notify_one();
                Ok(())
            }
        };
        assert!(timeout(Duration::from_secs(1), carry_out(work)).await.is_err());
        timeout(Duration::from_secs(10), done.notified()).await.unwrap();
    }
}
