//! The line of systemd's journal in which a runner says why it failed, for people. The line is no evidence: a job can write such lines, and can make
//! others disappear.
//!
//! The output of a unit is read with `journalctl`, because the journal's files have no other stable reader. journald itself records the process and the
//! unit of each message.

mod line;

use std::{
    io,
    pin::Pin,
    process::{Output, Stdio},
    sync::Arc,
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use tokio::{
    process::Command,
    time::{Instant, sleep, timeout},
};
use tracing::debug;

use self::line::last_error;
use super::owner::UnitName;

/// Timeout of reading.
const READ_LIMIT: Duration = Duration::from_secs(5);

/// Number of requested messages.
const MESSAGES: &str = "--lines=100";

/// The runner may have written before its start time was recorded.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(1);

/// Time for journald to store messages if `journalctl --sync` is not permitted.
const SETTLE: Duration = Duration::from_millis(200);

/// The last error in a runner's log; `None` if there is none, or if the log cannot be read. Dropping it cancels the read.
pub type LastError = Pin<Box<dyn Future<Output = Option<Arc<str>>> + Send>>;

/// The journal, to which the unit of the runner writes.
#[derive(Clone, Debug)]
pub struct Journal {
    /// The unit, as journald records it.
    unit: String,
}

impl Journal {
    /// The log of this unit.
    pub(crate) fn of_unit(unit: &UnitName) -> Self {
        Self { unit: unit.to_string() }
    }

    /// Reads the last error of the runner with this PID that was started at `since` and has exited.
    pub(super) fn last_error(&self, pid: u32, since: Instant) -> LastError {
        let journal = self.clone();
        Box::pin(async move {
            let since = monotonic_of(since).saturating_sub(CLOCK_TOLERANCE);
            let read = timeout(READ_LIMIT, journal.read(pid, since)).await;
            match read.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                Ok(lines) => last_error(&lines).map(Arc::from),
                Err(error) => {
                    debug!(
                        %error,
                        pid,
                        "cannot read the runner's log"
                    );
                    None
                }
            }
        })
    }

    /// The last messages of the process with this PID in the unit, since this time of the monotonic clock.
    async fn read(&self, pid: u32, since: Duration) -> io::Result<Vec<String>> {
        sync().await;
        let (of_pid, of_unit) = (format!("_PID={pid}"), format!("_SYSTEMD_UNIT={}", self.unit));
        let fixed = ["--quiet", "--no-pager", "--boot", "--output=json", "--output-fields=MESSAGE", MESSAGES];
        let output = journalctl(&[&fixed[..], &[&of_pid, &of_unit]].concat()).await?;
        if output.status.success() {
            return Ok(messages(&String::from_utf8_lossy(&output.stdout), since));
        }
        let text = String::from_utf8_lossy(&output.stderr);
        Err(io::Error::other(format!("journalctl: {}: {}", output.status, text.trim())))
    }
}

/// A written message may not be readable yet. Only root can request a sync.
async fn sync() {
    if !journalctl(&["--sync"]).await.is_ok_and(|output| output.status.success()) {
        sleep(SETTLE).await;
    }
}

async fn journalctl(words: &[&str]) -> io::Result<Output> {
    let mut command = Command::new("journalctl");
    command.args(words).env("LC_ALL", "C").stdin(Stdio::null()).kill_on_drop(true);
    command.output().await
}

/// The journal's timestamps are monotonic, so a change of the wall clock does not matter.
fn monotonic_of(instant: Instant) -> Duration {
    clock(ClockId::Monotonic).saturating_sub(instant.elapsed())
}

fn clock(clock: ClockId) -> Duration {
    let now = clock_gettime(clock);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
}

/// The messages since an instant of the monotonic clock, from JSON lines: an earlier process may have had the same PID.
fn messages(text: &str, since: Duration) -> Vec<String> {
    let entries = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let ours = entries.filter(|entry| {
        // A number as a string (systemd.journal-fields(7)).
        let at = entry["__MONOTONIC_TIMESTAMP"].as_str().and_then(|micros| micros.parse().ok());
        at.is_none_or(|micros| Duration::from_micros(micros) >= since)
    });
    ours.filter_map(|entry| message(&entry["MESSAGE"])).collect()
}

/// A message is a string, or a list of bytes if it is not valid UTF-8. A message that is too long is null.
fn message(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(bytes) => {
            let byte = |value: &Value| value.as_u64().and_then(|byte| u8::try_from(byte).ok());
            let bytes: Vec<u8> = bytes.iter().filter_map(byte).collect();
            Some(String::from_utf8_lossy(&bytes).into_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journal_messages_of_current_process_are_parsed() {
        let text = r#"
{"__MONOTONIC_TIMESTAMP":"1000000","MESSAGE":"of another"}
{"__MONOTONIC_TIMESTAMP":"3000000","MESSAGE":"first"}
{"__MONOTONIC_TIMESTAMP":"3000001","MESSAGE":[27,91,48,109,98,255]}
{"__MONOTONIC_TIMESTAMP":"3000002","MESSAGE":null}
not JSON
{"__MONOTONIC_TIMESTAMP":"3000003","MESSAGE":"last"}"#;
        let found = messages(text, Duration::from_secs(2));
        assert_eq!(found, ["first", "\u{1b}[0mb\u{fffd}", "last"]);
    }
}
