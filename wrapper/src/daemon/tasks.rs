//! The tasks of the wrapper. All of them run until the wrapper exits. If a task exits earlier, the wrapper exits with an error that names
//! the task: otherwise, for example, signals could stop working unnoticed.

use std::{fmt::Display, panic::AssertUnwindSafe};

use futures::FutureExt;
use thiserror::Error;
use tokio::task::{JoinError, JoinSet};

use crate::daemon::host::logging;

/// The tasks, by name. Dropping this ends them.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    tasks: JoinSet<(&'static str, Result<(), String>)>,
    names: Vec<&'static str>,
}

/// A task that exited before the wrapper.
#[derive(Debug, Error, PartialEq, Eq)]
#[error(
    "internal task {name:?} {how}. This is a bug in grit-wrapper, please report it. The wrapper exits; the \
     runner of a unit keeps running, and another one drains"
)]
pub struct TaskFailed {
    name: &'static str,
    how: String,
}

impl TaskFailed {
    pub(crate) fn new(name: &'static str, error: JoinError) -> Self {
        let how = match error.try_into_panic() {
            Ok(payload) => format!("panicked: {}", logging::panic_message(&*payload)),
            Err(_) => "was cancelled".to_owned(),
        };
        Self { name, how }
    }
}

impl Tasks {
    pub(crate) fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.spawn_fallible(name, async {
            task.await;
            Ok::<_, String>(())
        });
    }

    /// Starts a task that may fail.
    pub(crate) fn spawn_fallible<E: Display>(
        &mut self,
        name: &'static str,
        task: impl Future<Output = Result<(), E>> + Send + 'static,
    ) {
        self.names.push(name);
        self.tasks.spawn(async move {
            let result = match AssertUnwindSafe(task).catch_unwind().await {
                Ok(result) => result.map_err(|error| format!("failed: {error}")),
                Err(panic) => Err(format!("panicked: {}", logging::panic_message(&*panic))),
            };
            (name, result)
        });
    }

    /// Waits for a task that exits unexpectedly. Without tasks it never returns.
    pub(crate) async fn failed(&mut self) -> TaskFailed {
        match self.next().await {
            Some((name, Ok(()))) => TaskFailed { name, how: "ended".to_owned() },
            Some((_, Err(failed))) => failed,
            None => std::future::pending().await,
        }
    }

    /// Waits for the exit of this task, which is expected. Other tasks may exit meanwhile. The task may have exited already.
    pub(crate) async fn end_of(&mut self, name: &'static str) -> Result<(), TaskFailed> {
        while self.names.contains(&name) {
            match self.next().await {
                Some((part, result)) if part == name => return result,
                Some((_, result)) => result?,
                None => break,
            }
        }
        Ok(())
    }

    async fn next(&mut self) -> Option<(&'static str, Result<(), TaskFailed>)> {
        // No task is cancelled, and a panic is a result.
        let (name, result) = self.tasks.join_next().await?.ok()?;
        self.names.retain(|other| *other != name);
        Some((name, result.map_err(|how| TaskFailed { name, how })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn ended_panicked_or_failed_task_is_named() {
        let mut parts = Tasks::default();
        parts.spawn("lasting", std::future::pending());
        parts.spawn("ending", async {});
        assert_eq!(parts.failed().await, TaskFailed { name: "ending", how: "ended".to_owned() });
        parts.spawn("panicking", async { panic!("so {}", 7) });
        assert_eq!(
            parts.failed().await.to_string().split('.').next(),
            Some("internal task \"panicking\" panicked: so 7")
        );
        parts.spawn_fallible("failing", async { Err("no socket") });
        assert_eq!(parts.failed().await, TaskFailed { name: "failing", how: "failed: no socket".to_owned() });
    }

    #[tokio::test]
    async fn end_of_named_task_is_returned() {
        let mut parts = Tasks::default();
        parts.spawn("lasting", std::future::pending());
        parts.spawn("ending", tokio::task::yield_now());
        assert_eq!(parts.end_of("ending").await, Ok(()));
        assert_eq!(parts.end_of("ending").await, Ok(()), "it has ended already");
        parts.spawn_fallible("failing", async { Err("no socket") });
        assert!(parts.end_of("failing").await.is_err());
    }
}
