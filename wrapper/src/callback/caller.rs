//! Making callbacks, again when they fail, without anybody waiting for them but the wrapper's own end.

use std::{error::Error, sync::Arc, time::Duration};

use tokio::{
    runtime::Handle,
    time::{Instant, sleep, timeout_at},
};
use tokio_util::task::TaskTracker;
use tracing::{error, info, warn};

use super::{Callback, client};
use crate::{
    counters::{CallbackResult, Counters},
    supervisor::{Callbacks, Made},
};

/// What upstream's wrapper gives its one attempt.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(10);

/// Tries per callback: with the pauses between them they outlast the restart of the service that is called.
const ATTEMPTS: u32 = 6;

/// The first pause; each next one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// Makes callbacks in tasks of their own.
#[derive(Clone, Debug)]
pub struct Caller {
    tasks: TaskTracker,
    runtime: Handle,
    counters: Arc<Counters>,
    attempt_limit: Duration,
    first_pause: Duration,
}

impl Caller {
    /// How long an ending wrapper waits for callbacks that still fail: two hanging attempts, or all that fail quickly.
    pub const FINISH_LIMIT: Duration = Duration::from_secs(25);

    /// A caller whose tasks run on `runtime`, and whose attempts are counted in `counters`.
    #[must_use]
    pub fn new(runtime: Handle, counters: Arc<Counters>) -> Self {
        let tasks = TaskTracker::new();
        Self { tasks, runtime, counters, attempt_limit: ATTEMPT_LIMIT, first_pause: FIRST_PAUSE }
    }

    /// Waits for all callbacks, at most for `limit`; answers whether all have come to an end.
    pub async fn finish(self, limit: Duration) -> bool {
        self.tasks.close();
        timeout_at(Instant::now() + limit, self.tasks.wait()).await.is_ok()
    }
}

impl Callbacks for Caller {
    fn call(&mut self, callback: Callback, made: Made) {
        let (limit, pause, counters) = (self.attempt_limit, self.first_pause, Arc::clone(&self.counters));
        let work = async move {
            make(callback, limit, pause, &counters).await;
            made.report().await;
        };
        self.tasks.spawn_on(work, &self.runtime);
    }
}

/// Makes the callback until it succeeds or nothing more can be hoped for, and logs which it was.
async fn make(callback: Callback, attempt_limit: Duration, first_pause: Duration, counters: &Counters) {
    let mut pause = first_pause;
    for attempt in 1..=ATTEMPTS {
        match client::attempt(&callback, attempt_limit).await {
            Ok(status) => {
                counters.attempted(CallbackResult::Success);
                info!(target_url = %callback.target(), status = status.as_u16(), attempt, "shutdown callback made");
                return;
            }
            Err(cause) if cause.is_transient() && attempt < ATTEMPTS => {
                counters.attempted(CallbackResult::Retry);
                warn!(target_url = %callback.target(), attempt, error = chain(&cause), "shutdown callback failed; trying again");
            }
            Err(cause) => {
                counters.attempted(CallbackResult::GivenUp);
                error!(target_url = %callback.target(), attempt, error = chain(&cause), "shutdown callback given up");
                return;
            }
        }
        sleep(pause).await;
        pause *= 2;
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
    async fn a_server_that_never_answers_costs_ten_seconds_an_attempt_and_is_given_up() {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let begin = Instant::now();
        let counters = Counters::default();
        make(to(silent.local_addr().unwrap()), ATTEMPT_LIMIT, FIRST_PAUSE, &counters).await;
        let attempts = CallbackResult::ALL.map(|result| counters.attempts(result));
        assert_eq!(attempts, [0, u64::from(ATTEMPTS) - 1, 1]);
        let pauses = FIRST_PAUSE * (1 + 2 + 4 + 8 + 16);
        let took = begin.elapsed();
        assert!(took >= ATTEMPT_LIMIT * ATTEMPTS + pauses, "{took:?}");
        assert!(took < ATTEMPT_LIMIT * ATTEMPTS + pauses + Duration::from_secs(1), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_ending_wrapper_does_not_wait_for_ever() {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut caller = Caller::new(Handle::current(), Arc::default());
        let callback = to(silent.local_addr().unwrap());
        caller.call(callback.clone(), Made::to_nobody(callback));
        let begin = Instant::now();
        assert!(!caller.finish(Caller::FINISH_LIMIT).await);
        assert!(begin.elapsed() < Caller::FINISH_LIMIT + Duration::from_secs(1));
    }
}
