//! Waits for a state of the runner, with a progress display.

use std::{
    io::{self, Write},
    time::Duration,
};

use clap::ValueEnum;
use grit_proto::{
    duration::human,
    json::short,
    wrapper_v1::{Drain, DrainOutcome, GetStatusRequest, Status, WatchRequest},
};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tonic::{Code, Streaming};

use super::{
    client::{Client, is_from_server},
    error::CommandError,
};
use crate::{
    daemon::{serve::listen::Address, status},
    runner::Level,
};

/// Update interval of the progress display on a terminal.
const DISPLAY_INTERVAL: Duration = Duration::from_secs(1);

/// Interval of progress lines in a log.
const LINE_INTERVAL: Duration = Duration::from_secs(60);

/// A wrapper sends the first status immediately.
const FIRST_STATUS: Duration = Duration::from_secs(10);

/// Delay before reconnecting to a lost wrapper, which may just be restarting.
const RECONNECT: Duration = Duration::from_millis(500);

/// What `wait` waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Goal {
    /// The runner has exited.
    Stopped,
    /// The runner's process is running.
    Process,
    /// The runner is ready for jobs.
    Ready,
    /// GitLab accepts the runner's job requests. GitLab also accepts the job requests of a paused runner.
    Polling,
    /// The runner polls, and has finished a job successfully since its start.
    Working,
}

impl Goal {
    /// The health level to wait for; `None` for the runner's exit.
    fn level(self) -> Option<Level> {
        match self {
            Self::Stopped => None,
            Self::Process => Some(Level::Process),
            Self::Ready => Some(Level::Ready),
            Self::Polling => Some(Level::Polling),
            Self::Working => Some(Level::Working),
        }
    }
}

/// The end of a wait.
#[derive(Debug)]
pub(super) struct Reached {
    pub(super) status: Status,
    /// Of the drain that was waited for, or of the drain in the status; unspecified without a drain.
    pub(super) outcome: DrainOutcome,
}

/// Waits until the runner reaches the goal, and returns its status. Reconnects to a lost wrapper. `watch`: of the request for a drain; the wait
/// ends with that drain, also if another client has started the runner again, and fails when the drain is cancelled.
pub(super) async fn wait(
    address: &Address,
    goal: Goal,
    limit: Option<Duration>,
    progress: Progress,
    watch: Option<Watch>,
) -> Result<Reached, CommandError> {
    let mut watcher = Watcher::new(goal, progress, watch.is_some());
    let begin = watcher.begin;
    let watch = watcher.watch(address, watch);
    let result = match limit {
        Some(limit) => timeout_at(begin + limit, watch).await,
        None => Ok(watch.await),
    };
    if progress == Progress::Terminal {
        writeln!(io::stderr().lock())?;
    }
    result.unwrap_or_else(|_| {
        let after = limit.unwrap_or_default();
        Err(CommandError::TimedOut { after, last: watcher.last })
    })
}

/// A Watch call.
pub(super) struct Watch {
    pub(super) client: Client,
    statuses: Streaming<Status>,
    /// A status to process before those of the call.
    pub(super) status: Option<Status>,
}

impl Watch {
    pub(super) async fn open(address: &Address) -> Result<Self, CommandError> {
        let client = Client::connect(address).await?;
        let statuses = client.ask(async |wrapper| wrapper.watch(WatchRequest {}).await).await?;
        Ok(Self { client, statuses, status: None })
    }

    /// Discards the first status, so that all others are later than this call. A failure repeats when the next status is read.
    pub(super) async fn skip_first(&mut self) {
        let _status_or_failure = timeout(FIRST_STATUS, self.statuses.message()).await;
    }
}

/// Kind of the progress display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// One line on a terminal, updated every second.
    Terminal,
    /// One line per minute, for logs of a pipeline.
    Lines,
}

struct Watcher {
    goal: Goal,
    /// A drain was requested before.
    of_drain: bool,
    /// The drain that was requested or joined, as last seen.
    drain: Option<Drain>,
    progress: Progress,
    begin: Instant,
    /// Time of the next progress line.
    next_line: Instant,
    last: String,
    /// Whether a wrapper was connected at any time.
    seen: bool,
    /// Whether the connection is lost now.
    lost: bool,
}

impl Watcher {
    fn new(goal: Goal, progress: Progress, of_drain: bool) -> Self {
        let begin = Instant::now();
        Self {
            goal,
            of_drain,
            drain: None,
            progress,
            begin,
            next_line: begin + LINE_INTERVAL,
            last: "is in an unknown state: the wrapper has not responded yet".to_owned(),
            seen: false,
            lost: false,
        }
    }

    async fn watch(&mut self, address: &Address, mut open: Option<Watch>) -> Result<Reached, CommandError> {
        loop {
            match self.follow(address, open.take()).await {
                Ok(Some(reached)) => return Ok(reached),
                Ok(None) | Err(CommandError::ConnectionLost { .. }) => self.report_lost_connection()?,
                Err(CommandError::Connect { .. }) if self.seen => self.report_lost_connection()?,
                // Without any wrapper so far, the command fails immediately.
                Err(error) => return Err(error),
            }
            sleep(RECONNECT).await;
        }
    }

    /// Watches over one connection: the wanted status, or `None` if the connection is lost.
    async fn follow(
        &mut self,
        address: &Address,
        open: Option<Watch>,
    ) -> Result<Option<Reached>, CommandError> {
        let mut watch = match open {
            Some(watch) => watch,
            None => Watch::open(address).await?,
        };
        loop {
            let next = match watch.status.take() {
                Some(status) => Ok(Ok(Some(status))),
                None => timeout(DISPLAY_INTERVAL, watch.statuses.message()).await,
            };
            let status = match next {
                Err(_) => {
                    self.show()?;
                    continue;
                }
                Ok(Ok(Some(status))) => status,
                Ok(Ok(None)) => return Ok(None),
                // A retry would have the same result.
                Ok(Err(error)) if is_from_server(&error) && !is_lost(&error) => {
                    return Err(CommandError::Refused(error));
                }
                Ok(Err(_)) => return Ok(None),
            };
            self.find()?;
            self.last = status::line(&status);
            if self.goal == Goal::Working {
                let succeeded = status.health.as_ref().and_then(|health| health.jobs_succeeded);
                self.last += &format!(", {} of 1 jobs succeeded", succeeded.unwrap_or_default());
            }
            if let Some(outcome) = self.ended_drain(&status) {
                return Ok(Some(Reached { status, outcome }));
            }
            if is_reached(self.goal, &status) {
                let outcome = status.drain.as_ref().map(Drain::outcome).unwrap_or_default();
                return Ok(Some(Reached { status, outcome }));
            }
            self.show()?;
            if self.of_drain && status.drain.is_none() {
                // This status can be older than the request.
                let now =
                    watch.client.ask(async |wrapper| wrapper.get_status(GetStatusRequest {}).await).await?;
                if let Some(outcome) = self.ended_drain(&now) {
                    return Ok(Some(Reached { status: now, outcome }));
                }
                if now.drain.is_none() {
                    return Err(CommandError::DrainCancelled);
                }
            }
            if let Some(error) = unreachable_goal(self.goal, &status) {
                return Err(error);
            }
        }
    }

    /// The outcome of the drain that was requested or joined, if it is over and the runner was started again. Otherwise notes the drain.
    fn ended_drain(&mut self, status: &Status) -> Option<DrainOutcome> {
        if !self.of_drain {
            return None;
        }
        if let Some(last) = &status.last_drain
            && self.drain.as_ref().is_some_and(|ours| {
                // Clients reuse ids.
                (&last.id, last.requested_at) == (&ours.id, ours.requested_at)
            })
        {
            return Some(match last.outcome() {
                DrainOutcome::Unspecified => DrainOutcome::Unknown,
                outcome => outcome,
            });
        }
        self.drain = status.drain.clone().or_else(|| self.drain.take());
        None
    }

    fn report_lost_connection(&mut self) -> io::Result<()> {
        "is in an unknown state: the wrapper does not respond".clone_into(&mut self.last);
        if !std::mem::replace(&mut self.lost, true) {
            self.say("lost the connection to the wrapper; reconnecting")?;
        }
        self.show()
    }

    fn find(&mut self) -> io::Result<()> {
        self.seen = true;
        if std::mem::take(&mut self.lost) { self.say("reconnected to the wrapper") } else { Ok(()) }
    }

    /// Prints an event for the log of a pipeline; a terminal has the progress line.
    fn say(&self, text: &str) -> io::Result<()> {
        if self.progress == Progress::Terminal {
            Ok(())
        } else {
            writeln!(io::stderr().lock(), "grit-wrapper: {text}")
        }
    }

    fn show(&mut self) -> io::Result<()> {
        match self.due_progress() {
            Some(text) => io::stderr().lock().write_all(text.as_bytes()),
            None => Ok(()),
        }
    }

    /// The progress to print now. A log gets a line once in [`LINE_INTERVAL`].
    fn due_progress(&mut self) -> Option<String> {
        let now = Instant::now();
        let waited = human(Duration::from_secs((now - self.begin).as_secs()));
        if self.progress == Progress::Terminal {
            return Some(format!("\r\x1b[K{}; waited {waited}", self.last));
        }
        if now < self.next_line {
            return None;
        }
        self.next_line = now + LINE_INTERVAL;
        Some(format!("grit-wrapper: the runner {}; waited {waited}\n", self.last))
    }
}

/// Whether the status means that the wrapper is exiting, so that the next one may start.
fn is_lost(error: &tonic::Status) -> bool {
    matches!(error.code(), Code::Unavailable | Code::Cancelled | Code::Unknown | Code::Internal)
}

/// Why the runner cannot reach the goal without a user's action.
fn unreachable_goal(goal: Goal, status: &Status) -> Option<CommandError> {
    let wanted = goal.level()?;
    if status::is_over(status) {
        return Some(CommandError::RunnerExited(status.failure_reason.clone()));
    }
    if status.crash_loop {
        return Some(CommandError::CrashLoop(status.failure_reason.clone()));
    }
    let health = status.health.as_ref()?;
    let highest = health.level_max();
    let is_unreachable = (Level::None..wanted).contains(&highest) && health.level() >= highest;
    is_unreachable.then(|| CommandError::LevelUnreachable(short(highest.as_str_name())))
}

fn is_reached(goal: Goal, status: &Status) -> bool {
    match goal.level() {
        Some(wanted) => status.health.as_ref().is_some_and(|health| health.level() >= wanted),
        None => status::is_over(status),
    }
}

#[cfg(test)]
mod tests;
