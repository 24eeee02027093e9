//! Waiting for a state of the runner, with a line that tells how it goes.

use std::{
    io::{self, Write},
    time::Duration,
};

use grit_proto::wrapper_v1::{Level, State, Status, WatchRequest};
use tokio::time::{Instant, sleep, timeout_at};

use super::{
    CommandError, Goal,
    client::{Client, connect, explain},
    view,
};
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
    let mut last = "was not seen yet".to_owned();
    // That there is no wrapper at all is worth saying at once.
    let client = connect(address).await?;
    let watch = watch(address, client, goal, progress, &mut last);
    let result = match limit {
        Some(limit) => timeout_at(begin + limit, watch).await,
        None => Ok(watch.await),
    };
    if progress {
        writeln!(io::stderr().lock())?;
    }
    result.unwrap_or_else(|_| Err(CommandError::TimedOut { after: limit.unwrap_or_default(), last }))
}

async fn watch(
    address: &Address,
    mut client: Client,
    goal: Goal,
    progress: bool,
    last: &mut String,
) -> Result<Status, CommandError> {
    loop {
        let mut statuses = match client.watch(WatchRequest {}).await {
            Ok(statuses) => Some(statuses.into_inner()),
            Err(status) if status.code() == tonic::Code::Unavailable => None,
            Err(status) => return Err(explain(address, &status)),
        };
        while let Some(open) = &mut statuses {
            let Ok(Some(status)) = open.message().await else { break };
            *last = view::line(&status);
            if progress {
                write!(io::stderr().lock(), "\r\x1b[K{last}")?;
            }
            if is_reached(goal, &status) {
                return Ok(status);
            }
            if goal != Goal::Stopped && status.state() == State::Stopped && !status.reading_log {
                return Err(CommandError::Ended(status.failure_reason));
            }
        }
        sleep(RECONNECT).await;
        match connect(address).await {
            Ok(fresh) => client = fresh,
            Err(_) => *last = "cannot be asked: its wrapper does not answer".to_owned(),
        }
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
