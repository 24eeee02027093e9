//! Making callbacks, again when they fail, without anybody waiting for them but the wrapper's own end.

mod client;

use std::{error::Error, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use tokio::{
    runtime::Handle,
    time::{Instant, sleep},
};
use tracing::{error, info, warn};

use super::counters::{CallbackResult, Counters};
use crate::supervise::callback::Callback;
use crate::supervise::{Callbacks, Completion};

/// What upstream's wrapper gives its one attempt.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(10);

/// The first pause; each next one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(5 * 60);

/// So long after it was due a callback that still fails is given up: a service that is called may be down for a night.
const GIVE_UP_AFTER: Duration = Duration::from_secs(24 * 3600);

/// Makes callbacks in tasks of their own.
#[derive(Clone, Debug)]
pub(super) struct CallbackSender {
    runtime: Handle,
    counters: Arc<Counters>,
}

impl CallbackSender {
    /// A caller whose tasks run on `runtime`, and whose attempts are counted in `counters`.
    #[must_use]
    pub(super) fn new(runtime: Handle, counters: Arc<Counters>) -> Self {
        Self { runtime, counters }
    }
}

impl Callbacks for CallbackSender {
    fn send(&mut self, callback: Callback, since: Instant, completion: Completion) {
        let counters = Arc::clone(&self.counters);
        self.runtime.spawn(async move {
            make(callback, since, &counters).await;
            completion.report().await;
        });
    }
}

/// Makes the callback until it succeeds or nothing more can be hoped for, and logs which it was. It was due at `since`.
async fn make(callback: Callback, since: Instant, counters: &Counters) {
    let mut pause = FIRST_PAUSE;
    for attempt in 1_u32.. {
        // A fault of ours in one attempt is no reason to stop, nor to end the wrapper, whose successor would meet the same fault.
        let result = AssertUnwindSafe(client::attempt(&callback, ATTEMPT_LIMIT)).catch_unwind().await;
        let (cause, is_transient) = match result {
            Ok(Ok(status)) => {
                counters.attempted(CallbackResult::Success);
                info!(target_url = %callback.target(), status = status.as_u16(), attempt, "shutdown callback succeeded");
                return;
            }
            Ok(Err(cause)) => (chain(&cause), cause.is_transient()),
            Err(_) => {
                ("the attempt panicked; this is a bug in grit-wrapper, please report it".to_owned(), true)
            }
        };
        if !is_transient || since.elapsed() + pause > GIVE_UP_AFTER {
            counters.attempted(CallbackResult::Exhausted);
            error!(target_url = %callback.target(), attempt, error = cause, "shutdown callback failed after all retries");
            return;
        }
        counters.attempted(CallbackResult::Failure);
        warn!(target_url = %callback.target(), attempt, error = cause, next_attempt_in = ?pause, "shutdown callback failed; retrying");
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// An error and its causes in one line.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use tokio::net::TcpListener;

    use super::*;

    fn to(address: std::net::SocketAddr) -> Callback {
        Callback::new(&format!("http://{address}/"), "POST", &HashMap::new()).unwrap()
    }

    /// The clock stands still but for the limits, so this takes no time; what it shows is which limits there are.
    #[tokio::test(start_paused = true)]
    async fn callback_to_silent_server_is_retried_for_one_day() {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let begin = Instant::now();
        let counters = Counters::default();
        make(to(silent.local_addr().unwrap()), begin, &counters).await;
        let [success, retry, given_up] = CallbackResult::ALL.map(|result| counters.attempts(result));
        assert_eq!((success, given_up), (0, 1));
        // Each attempt takes ten seconds, and the pauses grow to five minutes.
        assert!((250..320).contains(&retry), "{retry}");
        let took = begin.elapsed();
        assert!(
            took > GIVE_UP_AFTER - 2 * LONGEST_PAUSE && took <= GIVE_UP_AFTER + ATTEMPT_LIMIT,
            "{took:?}"
        );
    }

    /// As one that a wrapper takes up which was started a day later.
    #[tokio::test(start_paused = true)]
    async fn overdue_callback_is_attempted_once_more() {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let counters = Counters::default();
        tokio::time::advance(GIVE_UP_AFTER).await;
        let since = Instant::now().checked_sub(GIVE_UP_AFTER).unwrap();
        make(to(silent.local_addr().unwrap()), since, &counters).await;
        assert_eq!(CallbackResult::ALL.map(|result| counters.attempts(result)), [0, 0, 1]);
    }
}
