//! What systemd's journal shows of a runner that has exited: its last lines, and messages that its exit code does not show.
//!
//! The runner inherits the wrapper's stderr. A pipe through the wrapper would block the runner, or kill it with SIGPIPE, when the wrapper
//! exits. So its output is read back from the journal, with `journalctl`, because the journal's files have no other stable reader. journald itself
//! records the process and the unit of each message. The wrapper must be root or in the group `systemd-journal`. Output to a file, a pipe or a
//! terminal is not read back.

mod drain;
mod redact;

use std::{
    fs, io,
    os::fd::{AsFd, BorrowedFd},
    pin::Pin,
    process::{Output, Stdio},
    time::{Duration, SystemTime},
};

use rustix::{
    fs::fstat,
    time::{ClockId, clock_gettime},
};
use serde_json::Value;
use tokio::{
    process::Command,
    time::{Instant, sleep, timeout},
};
use tracing::debug;

use self::redact::presentable;
use crate::supervise::log_key as key;

/// Timeout of reading. Only the text of the failure waits for it.
const READ_LIMIT: Duration = Duration::from_secs(5);

/// Timeout of a search. The end of a drain is reported after it, because its outcome depends on it.
const SEARCH_LIMIT: Duration = Duration::from_secs(2);

/// Number of requested messages. Some may be empty.
const MESSAGES: &str = "--lines=40";

/// The runner may have written before its start time was recorded.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(1);

/// journalctl begins this long before the drain. Without a begin it would read all messages of the runner.
const SEARCH_TOLERANCE: Duration = Duration::from_secs(60);

/// Time for journald to store messages if `journalctl --sync` is not permitted.
const SETTLE: Duration = Duration::from_millis(200);

/// The last lines of a runner's log, oldest first; empty if there are none, or if they cannot be read. Dropping it cancels the read.
pub type LastLines = Pin<Box<dyn Future<Output = Vec<String>> + Send>>;

/// The journal, to which the wrapper and its runner write.
#[derive(Clone, Debug)]
pub struct Journal {
    /// The unit of both, as journald records it.
    unit: String,
}

impl Journal {
    /// `None` if the stderr of this process is not the journal, or if it does not run in a unit. `journal_stream` is the value of `JOURNAL_STREAM`,
    /// which identifies the journal's stream, because stderr may have been redirected.
    pub fn of_stderr(journal_stream: Option<&str>) -> Option<Self> {
        let is_journal = is_stream(io::stderr().as_fd(), journal_stream?);
        let unit = is_journal.then(|| unit_of(&fs::read_to_string("/proc/self/cgroup").ok()?))??;
        Some(Self { unit })
    }

    /// Reads the last lines of the runner with this PID that was started at `since` and has exited.
    ///
    /// Escape sequences, keys, tokens and URL paths are removed, and long lines are shortened, because users with read-only access can see them.
    pub(super) fn last_lines(&self, pid: u32, since: Instant) -> LastLines {
        let journal = self.clone();
        Box::pin(async move {
            let since = monotonic_of(since).saturating_sub(CLOCK_TOLERANCE);
            match journal.messages(READ_LIMIT, pid, since, &[MESSAGES]).await {
                Ok(raw) => presentable(&raw),
                Err(error) => {
                    debug!(
                        { key::ERROR } = %error,
                        { key::PID } = pid,
                        "cannot read the last lines of the runner's log"
                    );
                    Vec::new()
                }
            }
        })
    }

    /// For each text, whether a message of the runner with this PID, which has exited, begins with it and was written after `since`, when
    /// the wall clock was `wall`. Fails if the journal cannot be read in time. The texts have only letters and spaces.
    async fn has_messages<const N: usize>(
        &self,
        texts: [&str; N],
        pid: u32,
        since: Instant,
        wall: SystemTime,
    ) -> io::Result<[bool; N]> {
        let suspended = clock(ClockId::Boottime).saturating_sub(clock(ClockId::Monotonic));
        let begin = begin(wall, SystemTime::now(), since.elapsed() + suspended);
        let grep = format!("--grep={}", texts.join("|"));
        let found = self.messages(SEARCH_LIMIT, pid, monotonic_of(since), &[&begin, &grep]).await?;
        Ok(texts.map(|text| found.iter().any(|line| message_of_runner(line).starts_with(text))))
    }

    /// The messages of the process with this PID in the unit, since this time of the monotonic clock. Fails after `limit`. `words`: further
    /// arguments of `journalctl`.
    async fn messages(
        &self,
        limit: Duration,
        pid: u32,
        since: Duration,
        words: &[&str],
    ) -> io::Result<Vec<String>> {
        let read = timeout(limit, self.read(pid, since, words)).await;
        read.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    async fn read(&self, pid: u32, since: Duration, words: &[&str]) -> io::Result<Vec<String>> {
        sync().await;
        let (of_pid, of_unit) = (format!("_PID={pid}"), format!("_SYSTEMD_UNIT={}", self.unit));
        let fixed = ["--quiet", "--no-pager", "--boot", "--output=json", "--output-fields=MESSAGE"];
        let output = journalctl(&[&fixed[..], words, &[&of_pid, &of_unit]].concat()).await?;
        messages_in(&output, since)
    }
}

/// The messages that journalctl has written. Fails if journalctl failed, or if it skipped a file of the journal and found nothing in the others.
fn messages_in(output: &Output, since: Duration) -> io::Result<Vec<String>> {
    let found = messages(&String::from_utf8_lossy(&output.stdout), since);
    // With `--grep` and without a match, newer versions exit with 1, without any output.
    let no_match = output.status.code() == Some(1) && output.stdout.is_empty() && output.stderr.is_empty();
    let complete = output.status.success() && (output.stderr.is_empty() || !found.is_empty());
    if complete || no_match {
        return Ok(found);
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("journalctl: {}: {}", output.status, text.trim())))
}

/// The message of a line of GitLab Runner's log: after the level in its own format, or the field `msg` of logrus' text and JSON formats.
///
/// What follows the begin of a message can contain texts of jobs, branches and variables.
fn message_of_runner(line: &str) -> String {
    if line.starts_with('{') {
        let json = serde_json::from_str::<Value>(line).unwrap_or_default();
        return json["msg"].as_str().unwrap_or_default().to_owned();
    }
    let fields =
        line.strip_prefix("time=\"").and_then(|rest| Some(rest.split_once("\" ")?.1)).unwrap_or(line);
    if let Some((level, message)) = fields.strip_prefix("level=").and_then(|rest| rest.split_once(" msg="))
        && level.bytes().all(|byte| byte.is_ascii_lowercase())
    {
        return message.trim_start_matches('"').to_owned();
    }
    let mut text = line;
    // The colour.
    while let Some((_, rest)) = text.strip_prefix("\u{1b}[").and_then(|rest| rest.split_once('m')) {
        text = rest;
    }
    let after_level = text.split_once(": ").filter(|(level, _)| LEVELS.contains(level));
    after_level.map_or(text, |(_, message)| message).to_owned()
}

/// The levels that GitLab Runner's own format shows.
const LEVELS: [&str; 4] = ["WARNING", "ERROR", "FATAL", "PANIC"];

/// The unit of a process, by systemd's rule: the first directory of its cgroup that is not a slice. systemd uses one of the two hierarchies.
fn unit_of(cgroups: &str) -> Option<String> {
    let of_systemd = |line: &&str| line.starts_with("0::") || line.contains(":name=systemd:");
    let unit = |line: &str| {
        let mut parts = line.rsplit(':').next()?.split('/');
        let unit = parts.find(|part| !part.is_empty() && !part.ends_with(".slice"))?;
        [".service", ".scope"].iter().any(|kind| unit.ends_with(kind)).then(|| unit.to_owned())
    };
    cgroups.lines().filter(of_systemd).find_map(unit)
}

/// Whether this file is the one in `JOURNAL_STREAM`, as `device:inode` (systemd.exec(5)).
fn is_stream(fd: BorrowedFd<'_>, stream: &str) -> bool {
    fstat(fd).is_ok_and(|stat| format!("{}:{}", stat.st_dev, stat.st_ino) == stream)
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

/// Where journalctl begins: at the wall clock of the request, or, if the wall clock was set back since then, at the age of the request before `now`.
/// The messages of other times are dropped by the monotonic clock.
fn begin(requested: SystemTime, now: SystemTime, age: Duration) -> String {
    let earliest = requested.min(now.checked_sub(age + SEARCH_TOLERANCE).unwrap_or(SystemTime::UNIX_EPOCH));
    format!("--since=@{}", earliest.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs())
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
    use std::{
        os::{fd::AsFd, unix::process::ExitStatusExt},
        process::ExitStatus,
    };

    use rustix::process::Signal;

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

    #[test]
    fn search_that_failed_differs_from_search_without_match() {
        let (exit, line) = (|code| code << 8, "{\"MESSAGE\":\"found\"}");
        for (status, stdout, stderr, found) in [
            (exit(0), line, "", Some(1)),
            (exit(0), "", "", Some(0)),
            (exit(1), "", "", Some(0)),
            (exit(0), line, "Journal file a.journal corrupted, ignoring file.", Some(1)),
            (exit(0), "", "Journal file a.journal corrupted, ignoring file.", None),
            (exit(1), "", "No journal files were opened due to insufficient permissions.", None),
            (exit(1), line, "", None),
            (exit(2), "", "", None),
            (Signal::KILL.as_raw(), "", "", None),
            (Signal::KILL.as_raw(), line, "", None),
        ] {
            let status = ExitStatus::from_raw(status);
            let output = Output { status, stdout: stdout.into(), stderr: stderr.into() };
            let result = messages_in(&output, Duration::ZERO);
            assert_eq!(result.ok().map(|found| found.len()), found, "{output:?}");
        }
    }

    /// Seconds by the wall clock; the drain was requested at 50,000, half an hour ago.
    #[test]
    fn search_begins_before_the_drain_after_any_clock_change() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        for (now, begins, why) in [
            (51_800, 49_940, "unchanged"),
            (59_000, 50_000, "set forward by two hours, or suspended"),
            (44_600, 42_740, "set back by two hours"),
            (100, 0, "set back to 1970"),
        ] {
            assert_eq!(
                begin(at(50_000), at(now), Duration::from_secs(1800)),
                format!("--since=@{begins}"),
                "{why}"
            );
        }
    }

    #[test]
    fn only_the_begin_of_the_runners_message_counts() {
        let text = "Starting forceful shutdown";
        for (line, begins) in [
            ("WARNING: Starting forceful shutdown      StopSignal=terminated", true),
            (
                "\u{1b}[0;33mWARNING: Starting forceful shutdown    \u{1b}[0;m \u{1b}[0;33mStopSignal\u{1b}[0;m=terminated",
                true,
            ),
            (r#"{"level":"warning","msg":"Starting forceful shutdown","time":"2026-01-01T00:00:00Z"}"#, true),
            (r#"time="2026-01-01T00:00:00Z" level=warning msg="Starting forceful shutdown" builds=1"#, true),
            (r#"level=warning msg="Starting forceful shutdown""#, true),
            (r#"WARNING: GIT_SUBMODULE_STRATEGY: expected 'none', got "Starting forceful shutdown""#, false),
            ("Checking for jobs... received    branch=Starting forceful shutdown", false),
            (r#"{"branch":"Starting forceful shutdown","msg":"Job succeeded"}"#, false),
            (r#"{"msg":"Job failed: Starting forceful shutdown"}"#, false),
            (
                r#"time="2026-01-01T00:00:00Z" level=info msg="x" branch=" level=warning msg=\"Starting forceful shutdown""#,
                false,
            ),
            ("JOB: Starting forceful shutdown", false),
            ("level=x: msg=Starting forceful shutdown", false),
        ] {
            assert_eq!(message_of_runner(line).starts_with(text), begins, "{line}");
        }
    }

    #[test]
    fn unit_is_the_first_directory_that_is_not_a_slice() {
        for (cgroups, unit) in [
            ("0::/system.slice/grit-wrapper.service/grit-runner-1\n", Some("grit-wrapper.service")),
            ("0::/user.slice/user-7.slice/user@7.service/app.slice/x.service\n", Some("user@7.service")),
            ("0::/user.slice/user-7.slice/session-1.scope\n", Some("session-1.scope")),
            ("4:memory:/x\n1:name=systemd:/system.slice/a.service\n0::/\n", Some("a.service")),
            ("1:name=systemd:/\n0::/system.slice/a.service\n", Some("a.service")),
            ("0::/\n", None),
            ("0::/docker/1234\n", None),
            ("", None),
        ] {
            assert_eq!(unit_of(cgroups).as_deref(), unit, "{cgroups}");
        }
    }

    #[test]
    fn journal_stream_matches_device_and_inode() {
        let file = tempfile::tempfile().unwrap();
        let stat = fstat(&file).unwrap();
        assert!(is_stream(file.as_fd(), &format!("{}:{}", stat.st_dev, stat.st_ino)));
        assert!(!is_stream(file.as_fd(), &format!("{}:{}", stat.st_dev, stat.st_ino + 1)));
        assert!(!is_stream(file.as_fd(), ""));
    }
}
