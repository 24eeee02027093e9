//! What follows a drain or an exit in the background: callbacks, with retries, and the command of `--on-exit`. Only the exit of the wrapper waits.

mod allowed;
mod client;
mod on_exit;
mod proxy;

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use tokio::{
    runtime::Handle,
    time::{Instant, sleep},
};
use tracing::{error, info, warn};

pub(crate) use self::allowed::CallbackRefused;
pub use self::allowed::{AllowedUrls, UrlPrefix};
pub(super) use self::on_exit::OnExit;
use super::counters::{CallbackResult, Counters};
use crate::supervise::{Callback, Completion, EndedStop, Stop, Surroundings, process::Exit};

/// The timeout of upstream's wrapper for its only attempt.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(10);

/// The first delay; it doubles with each retry.
const FIRST_DELAY: Duration = Duration::from_millis(500);

/// The maximum delay.
const MAX_DELAY: Duration = Duration::from_secs(5 * 60);

/// After this time a callback is not retried any more.
const RETRY_PERIOD: Duration = Duration::from_secs(3600);

/// Sends each callback in a separate task.
#[derive(Clone, Debug)]
pub(super) struct CallbackSender {
    runtime: Handle,
    counters: Arc<Counters>,
    allowed: AllowedUrls,
    on_exit: OnExit,
}

impl CallbackSender {
    /// A caller whose tasks run on `runtime`, and whose attempts are counted in `counters`.
    pub(super) fn new(
        runtime: Handle,
        counters: Arc<Counters>,
        allowed: AllowedUrls,
        on_exit: OnExit,
    ) -> Self {
        Self { runtime, counters, allowed, on_exit }
    }
}

impl Surroundings for CallbackSender {
    fn send(&mut self, callback: Callback, completion: Completion) {
        let Self { counters, allowed, .. } = self.clone();
        self.runtime.spawn(async move {
            send_with_retries(callback, &counters, &allowed).await;
            completion.report().await;
        });
    }

    fn count(&mut self, stop: EndedStop) {
        self.counters.count(stop);
    }

    fn exited(&mut self, exit: Exit, stop: Option<&Stop>) {
        self.on_exit.start(exit, stop);
    }
}

/// Sends the callback until it succeeds or further retries are useless, and logs the result.
async fn send_with_retries(callback: Callback, counters: &Counters, allowed: &AllowedUrls) {
    let since = Instant::now();
    let mut pause = FIRST_DELAY;
    for attempt in 1_u32.. {
        // A panic in one attempt must not end the wrapper: the next wrapper would panic as well.
        let result =
            AssertUnwindSafe(client::attempt(&callback, ATTEMPT_LIMIT, allowed)).catch_unwind().await;
        let (cause, is_transient) = match result {
            Ok(Ok(status)) => {
                counters.attempts[CallbackResult::Success as usize].add();
                info!(
                    target_url = %callback.target(),
                    status = status.as_u16(),
                    attempt,
                    "shutdown callback succeeded"
                );
                return;
            }
            Ok(Err(cause)) => {
                let is_transient = cause.is_transient();
                (format!("{:#}", anyhow::Error::new(cause)), is_transient)
            }
            Err(_) => {
                ("the attempt panicked; this is a bug in grit-wrapper, please report it".to_owned(), true)
            }
        };
        if !is_transient || since.elapsed() + pause > RETRY_PERIOD {
            counters.attempts[CallbackResult::Exhausted as usize].add();
            error!(
                target_url = %callback.target(),
                attempt,
                error = cause,
                "shutdown callback failed after all retries"
            );
            return;
        }
        counters.attempts[CallbackResult::Failure as usize].add();
        warn!(
            target_url = %callback.target(),
            attempt,
            error = cause,
            retry_in = ?pause,
            "shutdown callback failed; retrying"
        );
        sleep(pause).await;
        pause = (pause * 2).min(MAX_DELAY);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use tokio::net::TcpListener;

    use super::*;
    use crate::daemon::counters::Counter;

    /// A callback to a local receiver, and the list that allows it.
    fn to(receiver: &TcpListener) -> (Callback, AllowedUrls) {
        let url = format!("http://{}/", receiver.local_addr().unwrap());
        let allowed = AllowedUrls::new(vec![url.parse().unwrap()]);
        (Callback::new(&url, "POST", &HashMap::new()).unwrap(), allowed)
    }

    /// The clock is paused and advances from timer to timer, so the test takes no time.
    #[tokio::test(start_paused = true)]
    async fn callback_to_silent_server_is_retried_for_one_hour() {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let begin = Instant::now();
        let (counters, (callback, allowed)) = (Counters::default(), to(&silent));
        send_with_retries(callback, &counters, &allowed).await;
        let [success, retry, given_up] = counters.attempts.each_ref().map(Counter::get);
        assert_eq!((success, given_up), (0, 1));
        // Each attempt takes ten seconds, and the delays grow to five minutes.
        assert!((17..22).contains(&retry), "{retry}");
        let took = begin.elapsed();
        assert!(took > RETRY_PERIOD - 2 * MAX_DELAY && took <= RETRY_PERIOD + ATTEMPT_LIMIT, "{took:?}");
    }

    /// As one of a state file, whose wrapper had other flags; and one whose host has a local address.
    #[tokio::test(start_paused = true)]
    async fn callback_to_local_address_is_not_sent() {
        let receiver = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = receiver.local_addr().unwrap().port();
        // A resolver of names accepts the last two forms.
        for host in ["127.0.0.1", "[::ffff:127.0.0.1]", "localhost", "127.1", "2130706433"] {
            let callback = Callback::new(&format!("http://{host}:{port}/"), "", &HashMap::new()).unwrap();
            let counters = Counters::default();
            send_with_retries(callback, &counters, &AllowedUrls::default()).await;
            assert_eq!(counters.attempts.each_ref().map(Counter::get), [0, 0, 1], "{host}");
            let connected = tokio::time::timeout(Duration::from_secs(1), receiver.accept()).await;
            assert!(connected.is_err(), "{host}");
        }
    }
}
