//! Reads the last lines from systemd's journal with `journalctl`, because the journal's files have no other stable reader.

use std::{io, os::fd::BorrowedFd, process::Stdio, time::Duration};

use rustix::{
    fs::fstat,
    time::{ClockId, clock_gettime},
};
use serde_json::Value;
use tokio::{process::Command, time::sleep};

/// Number of requested messages. Some may be empty.
const MESSAGES: &str = "--lines=40";

/// The runner may have written before its start time was recorded.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(1);

/// A search begins this long before the drain. Without a limit it would read all messages of the runner.
const SEARCH_TOLERANCE: Duration = Duration::from_secs(60);

/// Time for journald to store messages if `journalctl --sync` is not permitted.
const SETTLE: Duration = Duration::from_millis(200);

/// Whether this file is the one in `JOURNAL_STREAM`, as `device:inode` (systemd.exec(5)).
pub(super) fn is_stream(fd: BorrowedFd<'_>, stream: &str) -> bool {
    fstat(fd).is_ok_and(|stat| format!("{}:{}", stat.st_dev, stat.st_ino) == stream)
}

/// The last messages of the process with this PID that was started this long ago.
/// For a user without access to the journal the result is empty, without an error.
pub(super) async fn read(pid: u32, age: Duration) -> io::Result<Vec<String>> {
    sync().await;
    let of_pid = format!("_PID={pid}");
    let words = ["--quiet", "--no-pager", "--boot", "--output=json", "--output-fields=MESSAGE", MESSAGES];
    let output = journalctl(&[&words[..], &[&of_pid]].concat()).await?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    let since = monotonic().saturating_sub(age).saturating_sub(CLOCK_TOLERANCE);
    Ok(messages(&String::from_utf8_lossy(&output.stdout), since))
}

/// For each text, which has only letters and spaces, whether the process with this PID has logged a message with it since this long ago.
pub(super) async fn contains<const N: usize>(
    texts: [&str; N],
    pid: u32,
    age: Duration,
) -> io::Result<[bool; N]> {
    sync().await;
    let age = age.saturating_add(SEARCH_TOLERANCE);
    let (since, of_pid) = (format!("--since=-{}s", age.as_secs()), format!("_PID={pid}"));
    let grep = format!("--grep={}", texts.join("|"));
    let words = ["--quiet", "--no-pager", "--boot", "--output=cat", &since, &grep, &of_pid];
    let output = journalctl(&words).await?;
    // Without a match, newer versions exit with 1 and an empty stderr.
    if !output.status.success() && !output.stderr.is_empty() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    let found = String::from_utf8_lossy(&output.stdout);
    Ok(texts.map(|text| found.contains(text)))
}

/// A written message may not be readable yet. Only root can request a sync.
async fn sync() {
    if !journalctl(&["--sync"]).await.is_ok_and(|output| output.status.success()) {
        sleep(SETTLE).await;
    }
}

async fn journalctl(words: &[&str]) -> io::Result<std::process::Output> {
    let mut command = Command::new("journalctl");
    command.args(words).env("LC_ALL", "C").stdin(Stdio::null()).kill_on_drop(true);
    command.output().await
}

/// The journal's timestamps are monotonic, so a change of the wall clock does not matter.
fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
}

/// The messages since an instant, from JSON lines: an earlier process may have had the same PID.
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
    use std::os::fd::AsFd;

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
    fn journal_stream_matches_device_and_inode() {
        let file = tempfile::tempfile().unwrap();
        let stat = fstat(&file).unwrap();
        assert!(is_stream(file.as_fd(), &format!("{}:{}", stat.st_dev, stat.st_ino)));
        assert!(!is_stream(file.as_fd(), &format!("{}:{}", stat.st_dev, stat.st_ino + 1)));
        assert!(!is_stream(file.as_fd(), ""));
    }
}
