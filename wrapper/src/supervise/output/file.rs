//! Reads the last lines of a regular file, into which other processes, at least the wrapper, may write as well.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
};

use serde_json::Value;

/// Maximum number of bytes that are read from the end.
const TAIL: u64 = 32 * 1024;

/// The lines at the end of the file after `start`, without the wrapper's lines.
/// The file must be readable for the wrapper's user.
pub(super) fn read(path: &str, start: u64) -> io::Result<Vec<String>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    // If the file became shorter, log rotation truncated it, and its whole content is new.
    let start = if start > length { 0 } else { start };
    let from = start.max(length.saturating_sub(TAIL));
    file.seek(SeekFrom::Start(from))?;
    let mut tail = Vec::new();
    file.take(TAIL).read_to_end(&mut tail)?;
    let text = String::from_utf8_lossy(&tail);
    // The first line may be incomplete.
    let whole = text.split('\n').skip(usize::from(from > start));
    Ok(whole.filter(|line| !is_ours(line)).map(str::to_owned).collect())
}

/// Whether the wrapper wrote this line.
fn is_ours(line: &str) -> bool {
    let Ok(Value::Object(event)) = serde_json::from_str(line) else { return false };
    ["timestamp", "level", "target"].iter().all(|key| event.contains_key(*key))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn lines(text: &str, start: u64) -> Vec<String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, text).unwrap();
        read(file.path().to_str().unwrap(), start).unwrap()
    }

    #[test]
    fn log_tail_omits_earlier_runner_and_wrapper_lines() {
        let ours = r#"{"timestamp":"2026-01-01T00:00:00Z","level":"INFO","message":"state","target":"grit_wrapper::run"}"#;
        let theirs = r#"{"level":"fatal","msg":"no config","time":"2026-01-01T00:00:00Z"}"#;
        let text = format!("earlier\n{ours}\n{theirs}\nlast\n");
        assert_eq!(lines(&text, 8), [theirs, "last", ""]);
        assert_eq!(lines(&text, 0), ["earlier", theirs, "last", ""]);
    }

    #[test]
    fn truncated_log_file_is_read_from_start() {
        assert_eq!(lines("new\n", 1_000_000), ["new", ""]);
    }

    #[test]
    fn large_log_file_tail_has_whole_lines() {
        let text = format!("{}\nthe last", "x".repeat(40_000));
        assert_eq!(lines(&text, 0), ["the last"]);
        let just = format!("{}\nthe last", "x".repeat(1000));
        assert_eq!(lines(&just, 0).len(), 2);
    }

    #[test]
    fn invalid_utf8_in_log_is_replaced() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, b"a\xff\nb").unwrap();
        assert_eq!(read(file.path().to_str().unwrap(), 0).unwrap(), ["a\u{fffd}", "b"]);
    }
}
