//! Waiting for a state of the runner, with a line that tells how it goes.

use std::{
    io::{self, Write},
    time::Duration,
};

use grit_proto::wrapper_v1::{Level, State, Status, WatchRequest};
use tokio::time::{Instant, sleep, timeout_at};

use super::{CommandError, Goal, client::Client, view};
use crate::listen::Address;

/// The pause before a lost wrapper is asked again: it may just be replaced.
const RECONNECT: Duration = Duration::from_millis(500);

/// Waits until the runner is as wanted, and answers how it is then. A wrapper that goes away meanwhile is looked for again.
pub(super) async fn wait(
    address: &Address,
    goal: Goal,
    limit: Option<Duration>,
    progress: bool,
) -> Result<Status, CommandError> {
    let begin = Instant::now();
    let mut watcher =
        Watcher { goal, progress, last: "was not seen yet".to_owned(), seen: false, lost: false };
    let watch = watcher.watch(address);
    let result = match limit {
        Some(limit) => timeout_at(begin + limit, watch).await,
        None => Ok(watch.await),
    };
    if progress {
        writeln!(io::stderr().lock())?;
    }
    result.unwrap_or_else(|_| {
        Err(CommandError::TimedOut { after: limit.unwrap_or_default(), last: watcher.last })
    })
}

/// What was seen so far.
struct Watcher {
    goal: Goal,
    /// Whether it goes into one line of a terminal.
    progress: bool,
    last: String,
    /// Whether there was a wrapper at all.
    seen: bool,
    /// Whether it is gone now.
    lost: bool,
}

impl Watcher {
    async fn watch(&mut self, address: &Address) -> Result<Status, CommandError> {
        loop {
            match self.follow(address).await {
                Ok(Some(status)) => return Ok(status),
                Ok(None) | Err(CommandError::Broken { .. }) => self.lose()?,
                Err(CommandError::Connect { .. }) if self.seen => self.lose()?,
                // That there is no wrapper at all is worth saying at once.
                Err(error) => return Err(error),
            }
            sleep(RECONNECT).await;
        }
    }

    /// Over one connection: the status that was waited for, or nothing when it breaks.
    async fn follow(&mut self, address: &Address) -> Result<Option<Status>, CommandError> {
        let client = Client::connect(address).await?;
        let mut statuses = client.ask(async |wrapper| wrapper.watch(WatchRequest {}).await).await?;
        while let Ok(Some(status)) = statuses.message().await {
            self.find()?;
            self.last = view::line(&status);
            self.show()?;
            if is_reached(self.goal, &status) {
                return Ok(Some(status));
            }
            if self.goal != Goal::Stopped && status.state() == State::Stopped && !status.reading_log {
                return Err(CommandError::Ended(status.failure_reason));
            }
        }
        Ok(None)
    }

    fn lose(&mut self) -> io::Result<()> {
        "cannot be asked: its wrapper does not answer".clone_into(&mut self.last);
        if !std::mem::replace(&mut self.lost, true) {
            self.say("the wrapper does not answer any more; waiting for it to come back")?;
        }
        self.show()
    }

    fn find(&mut self) -> io::Result<()> {
        self.seen = true;
        if std::mem::take(&mut self.lost) { self.say("the wrapper is back") } else { Ok(()) }
    }

    /// Something that a log of a pipeline should have; a terminal has the line.
    fn say(&self, text: &str) -> io::Result<()> {
        if self.progress { Ok(()) } else { writeln!(io::stderr().lock(), "grit-wrapper: {text}") }
    }

    fn show(&self) -> io::Result<()> {
        if self.progress { write!(io::stderr().lock(), "\r\x1b[K{}", self.last) } else { Ok(()) }
    }
}

fn is_reached(goal: Goal, status: &Status) -> bool {
    let level = status.health.as_ref().map_or(Level::Unspecified, grit_proto::wrapper_v1::Health::level);
    match goal {
        Goal::Stopped => status.state() == State::Stopped,
        Goal::Process => level >= Level::Process,
        Goal::Ready => level >= Level::Ready,
        Goal::Polling => level >= Level::Polling,
    }
}
