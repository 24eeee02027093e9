//! A queue of log lines with a limited size. Adding a line never waits.

use std::{
    collections::VecDeque,
    io,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use serde_json::json;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// Lines to be written, in order.
#[derive(Debug)]
pub(super) struct Queue {
    /// Maximum size in bytes.
    limit: usize,
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// A line was removed from the queue and is being written.
    writing: bool,
    /// Number of dropped lines since the start of the process.
    dropped: u64,
    /// Number of dropped lines that were reported in the log.
    reported: u64,
}

impl Queue {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, inner: Mutex::default(), changed: Condvar::new() }
    }

    /// Adds a line, or drops it if the queue is full.
    pub(super) fn push(&self, line: &[u8]) {
        let mut inner = self.lock();
        if inner.bytes + line.len() > self.limit {
            inner.dropped += 1;
            return;
        }
        // At the position where the lines are missing.
        inner.report_dropped();
        inner.add(line.to_vec());
        self.changed.notify_all();
    }

    pub(super) fn dropped(&self) -> u64 {
        self.lock().dropped
    }

    /// Waits until the queue is empty; returns whether this took at most `limit`.
    pub(super) fn flush(&self, limit: Duration) -> bool {
        let is_busy = |inner: &mut Inner| inner.writing || !inner.lines.is_empty();
        let waited = self.changed.wait_timeout_while(self.lock(), limit, is_busy);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Writes all lines; never returns. A line that cannot be written is dropped.
    pub(super) fn write_all_to(&self, write: impl Fn(&[u8]) -> io::Result<()>) {
        loop {
            let line = self.next();
            let is_written = write(&line).is_ok();
            let mut inner = self.lock();
            inner.writing = false;
            if !is_written {
                inner.dropped += 1;
            } else if inner.lines.is_empty() {
                inner.report_dropped();
            }
            self.changed.notify_all();
        }
    }

    fn next(&self) -> Vec<u8> {
        let mut inner = self.lock();
        loop {
            if let Some(line) = inner.lines.pop_front() {
                inner.bytes -= line.len();
                inner.writing = true;
                return line;
            }
            inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// No code that can panic runs under the lock.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn add(&mut self, line: Vec<u8>) {
        self.bytes += line.len();
        self.lines.push_back(line);
    }

    /// Adds a line with the number of missing lines, if any.
    fn report_dropped(&mut self) {
        let missing = self.dropped - self.reported;
        if missing > 0 {
            self.reported = self.dropped;
            self.add(dropped_line(missing));
        }
    }
}

/// In the format of all other lines.
fn dropped_line(count: u64) -> Vec<u8> {
    let timestamp = OffsetDateTime::from(SystemTime::now()).format(&Rfc3339).unwrap_or_default();
    let message =
        format!("{count} log lines were dropped, because stderr was blocked or could not be written");
    let line = json!({
        "timestamp": timestamp, "level": "WARN", "message": message, "dropped": count, "target": module_path!(),
    });
    format!("{line}\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, mpsc},
        thread,
    };

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// A queue whose writer thread passes each line on when the test takes it; the thread ends with the test process.
    fn slow(limit: usize) -> (Arc<Queue>, mpsc::Receiver<String>) {
        let queue = Arc::new(Queue::new(limit));
        let (sender, written) = mpsc::sync_channel(0);
        let writer = Arc::clone(&queue);
        thread::spawn(move || {
            writer.write_all_to(|line| {
                sender.send(String::from_utf8(line.to_vec()).unwrap()).map_err(io::Error::other)
            });
        });
        (queue, written)
    }

    fn next(written: &mpsc::Receiver<String>) -> String {
        written.recv_timeout(LONG).unwrap()
    }

    #[test]
    fn log_lines_keep_order_and_flush_waits() {
        let (queue, written) = slow(1000);
        let reader = thread::spawn(move || (0..100).map(|_| next(&written)).collect::<Vec<_>>());
        for number in 0..100 {
            queue.push(format!("{number}").as_bytes());
        }
        assert!(queue.flush(LONG));
        assert_eq!(reader.join().unwrap(), (0..100).map(|number| number.to_string()).collect::<Vec<_>>());
        assert_eq!(queue.dropped(), 0);
    }

    #[test]
    fn full_log_queue_drops_and_counts_lines() {
        let (queue, written) = slow(10);
        queue.push(b"first");
        // Removed by the writer, which is blocked.
        while !queue.lock().writing {
            thread::yield_now();
        }
        queue.push(b"0123456789");
        for _ in 0..3 {
            queue.push(b"lost");
        }
        assert_eq!(queue.dropped(), 3);
        assert!(!queue.flush(Duration::from_millis(10)), "nobody reads");
        assert_eq!((next(&written).as_str(), next(&written).as_str()), ("first", "0123456789"));
        // The number is reported although no other line is logged.
        let reported: serde_json::Value = serde_json::from_str(&next(&written)).unwrap();
        assert_eq!(reported["dropped"], 3);
        assert!(reported["message"].as_str().unwrap().starts_with("3 log lines were dropped"), "{reported}");
        queue.push(b"last");
        assert_eq!(next(&written), "last");
        assert!(queue.flush(LONG));
    }

    #[test]
    fn unwritable_log_lines_are_dropped_and_counted() {
        let queue = Arc::new(Queue::new(1000));
        let (sender, written) = mpsc::channel();
        let writer = Arc::clone(&queue);
        thread::spawn(move || {
            writer.write_all_to(|line| match line {
                b"bad" => Err(io::ErrorKind::StorageFull.into()),
                line => sender.send(String::from_utf8(line.to_vec()).unwrap()).map_err(io::Error::other),
            });
        });
        queue.push(b"bad");
        assert!(queue.flush(LONG));
        queue.push(b"good");
        assert!(next(&written).contains("\"dropped\":1"));
        assert_eq!(next(&written), "good");
    }
}
