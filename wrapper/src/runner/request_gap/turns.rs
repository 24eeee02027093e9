//! When a section of the runner may send its next request.

use std::time::Duration;

use tokio::time::Instant;

use super::read::Read;
use crate::runner::runner_config::RunnerConfig;

/// So close to the next turn of a section, SIGQUIT is not sent.
/// It is longer than the time from the beginning of a read to the signal.
const MARGIN: Duration = Duration::from_millis(130);

/// The turns of the sections, as far as the reads have shown them.
#[derive(Debug, Default)]
pub(super) struct Turns {
    count: Option<u64>,
    /// The end of the first read with this count.
    since: Option<Instant>,
    /// The last turn was between these moments.
    last: Option<(Instant, Instant)>,
    last_read: Option<Instant>,
    /// In the last read, a section that had its turn would wait for a worker. Its next turn is one interval after it gets one: the last turn
    /// was at the latest at the end of the next read.
    was_full: bool,
}

impl Turns {
    pub(super) fn add(&mut self, read: &Read<'_>, is_full: bool) {
        let was_full = std::mem::replace(&mut self.was_full, is_full);
        let before = self.last_read.replace(read.began);
        let count = read.metrics.feeds;
        if self.since.is_none() || self.count != count {
            self.last = before.filter(|_| self.count < count).map(|before| (before, read.ended));
            self.since = Some(read.ended);
        } else if was_full {
            self.last = self.last.map(|(first, _)| (first, read.ended));
            self.since = Some(read.ended);
        }
        self.count = count;
    }

    /// Whether a section may get its next turn before a signal arrives.
    pub(super) fn is_close(&self, config: Option<&RunnerConfig>, now: Instant) -> bool {
        let Some(config) = config else { return false };
        let (Some(interval), Some(_), Some(since)) = (interval(config), self.count, self.since) else {
            return false;
        };
        match self.last {
            // A disabled section gets no turn, so that the next one may follow after several intervals.
            Some((first, last)) if last - first + 2 * MARGIN < interval => {
                let phase = now.saturating_duration_since(first).as_nanos() % interval.as_nanos();
                let is_next = phase + MARGIN.as_nanos() >= interval.as_nanos()
                    || phase < (last - first + MARGIN).as_nanos();
                is_next && now + MARGIN >= first + interval
            }
            // The moment is not known. Without a turn for so long, all sections are disabled, or the next one waits for a worker.
            _ => now < since + config.check_interval + MARGIN,
        }
    }
}

/// The interval between the turns of two sections; `None` if it is too short to send a signal in between.
fn interval(config: &RunnerConfig) -> Option<Duration> {
    let sections = u32::try_from(config.sections.len()).ok().filter(|count| *count > 0)?;
    let interval = config.check_interval / sections;
    (interval > 3 * MARGIN).then_some(interval)
}
