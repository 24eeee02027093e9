//! Reads the last lines of a regular file, into which other processes, at least the wrapper, may write as well.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom},
};

use serde_json::Value;

/// Maximum number of bytes that are read from the end.
const TAIL: u64 = 32 * 1024;

/// Maximum number of bytes that are searched at the end. A runner that aborts a thousand jobs writes less after its message.
const SEARCHED: u64 = 4 * 1024 * 1024;

/// The lines at the end of the file after `start`, without the wrapper's lines.
/// The file must be readable for the wrapper's user.
pub(super) fn read(path: &str, start: u64) -> io::Result<Vec<String>> {
    let Tail { file, is_cut } = Tail::open(path, start, TAIL)?;
    let mut tail = Vec::new();
    file.take(TAIL).read_to_end(&mut tail)?;
    let text = String::from_utf8_lossy(&tail);
    // The first line may be incomplete.
    let whole = text.split('\n').skip(usize::from(is_cut));
    Ok(whole.filter(|line| !is_ours(line)).map(str::to_owned).collect())
}

/// For each text, whether a line at the end of the file after `start` contains it. The wrapper's lines do not count: they can quote an earlier
/// runner.
pub(super) fn contains<const N: usize>(path: &str, start: u64, texts: [&str; N]) -> io::Result<[bool; N]> {
    let mut lines = BufReader::new(Tail::open(path, start, SEARCHED)?.file.take(SEARCHED));
    let (mut line, mut found) = (Vec::new(), [false; N]);
    while found.contains(&false) && lines.read_until(b'\n', &mut line)? > 0 {
        let read = String::from_utf8_lossy(&line);
        let here = texts.map(|text| read.contains(text));
        if here.contains(&true) && !is_ours(&read) {
            found = std::array::from_fn(|at| found[at] || here[at]);
        }
        line.clear();
    }
    Ok(found)
}

/// A file at the beginning of its last bytes.
struct Tail {
    file: File,
    /// There are bytes between `start` and this position.
    is_cut: bool,
}

impl Tail {
    /// The bytes after `start`, at most `most`.
    fn open(path: &str, start: u64, most: u64) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        // If the file became shorter, log rotation truncated it, and its whole content is new.
        let start = if start > length { 0 } else { start };
        let from = start.max(length.saturating_sub(most));
        file.seek(SeekFrom::Start(from))?;
        Ok(Self { file, is_cut: from > start })
    }
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
    fn text_is_found_in_runner_lines_after_start() {
        let ours = r#"{"timestamp":"2026-01-01T00:00:00Z","level":"DEBUG","message":"the text","target":"grit_wrapper::run"}"#;
        let contains = |content: &str, start| {
            let file = tempfile::NamedTempFile::new().unwrap();
            fs::write(&file, content).unwrap();
            let [first, second] =
                contains(file.path().to_str().unwrap(), start, ["the text", "the other"]).unwrap();
            assert_eq!(second, content.contains("the other"));
            first
        };
        assert!(contains("one\nWARNING: the text   a=b\nlast\n", 4));
        assert!(contains("the text", 0));
        assert!(contains("the text\nthe other\n", 0) && !contains("the other\n", 0));
        assert!(!contains("the text\n", 4), "of an earlier runner");
        assert!(contains("the text\n", 1000), "the file was truncated");
        assert!(!contains(&format!("{ours}\n"), 0), "of the wrapper");
        let later = "x".repeat(99) + "\n";
        let after = |lines| contains(&format!("the text\n{}", later.repeat(lines)), 0);
        assert!(after(40_000) && !after(50_000));
    }

    #[test]
    fn invalid_utf8_in_log_is_replaced() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, b"a\xff\nb").unwrap();
        assert_eq!(read(file.path().to_str().unwrap(), 0).unwrap(), ["a\u{fffd}", "b"]);
    }
}
