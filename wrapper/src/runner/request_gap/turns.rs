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
    /// In the last read, no slot was free: a section that has its turn waits for one, and begins no request. Its next turn is one interval after it
    /// gets one, so that the last turn was at the latest at the end of the next read.
    is_full: bool,
}

impl Turns {
    pub(super) fn add(&mut self, read: &Read<'_>, is_full: bool) {
        let was_full = std::mem::replace(&mut self.is_full, is_full);
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
            _ if self.is_full => false,
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

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{at, config},
        *,
    };
    use crate::runner::runner_metrics::RunnerMetrics;

    #[test]
    fn sigquit_is_not_sent_just_before_a_turn() {
        let begin = Instant::now();
        let close = |interval, reads: &[(u64, Option<u64>)]| {
            let mut turns = Turns::default();
            let read = |(millis, feeds): &(u64, Option<u64>)| {
                let metrics = RunnerMetrics { feeds: *feeds, ..RunnerMetrics::default() };
                let read = at(begin, *millis, &metrics);
                turns.add(&read, false);
                turns.is_close(Some(&config(1, interval)), read.ended)
            };
            reads.iter().map(read).collect::<Vec<_>>()
        };
        let seen = |millis, feeds| (millis, Some(feeds));
        // The turn is seen at 500 ms.
        let one = [
            seen(0, 7),
            seen(480, 7),
            seen(500, 8),
            seen(3_300, 8),
            seen(3_360, 8),
            seen(3_510, 9),
            seen(3_700, 9),
        ];
        assert_eq!(close(3_000, &one), [true, true, false, false, true, false, false]);
        // It does not come, because all workers have jobs or the section is disabled.
        assert_eq!(close(3_000, &[seen(0, 7), seen(3_000, 7), seen(3_200, 7)]), [true, true, false]);
        let overdue = [seen(400, 7), seen(500, 8), seen(3_500, 8), seen(3_700, 8), seen(6_500, 8)];
        assert_eq!(close(3_000, &overdue), [true, false, true, false, true]);
        // No turn was seen: the long interval has begun at some time before.
        assert_eq!(close(60_000, &[seen(0, 7), seen(60_120, 7), seen(60_130, 7)]), [true, true, false]);
        // It was between two probes, in a part of the interval, and so will be the next one.
        let probes =
            [seen(0, 7), seen(5_000, 8), seen(9_860, 8), seen(9_870, 8), seen(15_120, 8), seen(15_130, 8)];
        assert_eq!(close(10_000, &probes), [true, false, false, true, true, false]);
        // Between two probes with a turn or more, its moment is not known.
        assert_eq!(close(3_000, &[seen(0, 7), seen(5_000, 8), seen(5_500, 8)]), [true, true, true]);
        assert_eq!(close(3_000, &[seen(0, 7), seen(2_900, 8), seen(3_000, 8)]), [true, true, true]);
        assert_eq!(close(300, &[seen(0, 7)]), [false], "the interval is short");
        assert_eq!(close(3_000, &[(0, None)]), [false], "an older runner");
    }

    /// The section waits for a worker from its turn on, and its next turn is one interval after it gets one.
    #[test]
    fn turn_of_a_full_runner_begins_with_its_worker() {
        let (begin, mut turns) = (Instant::now(), Turns::default());
        let mut is_close = |millis, is_full| {
            let metrics = RunnerMetrics { feeds: Some(7), ..RunnerMetrics::default() };
            let read = at(begin, millis, &metrics);
            turns.add(&read, is_full);
            turns.is_close(Some(&config(1, 10_000)), read.ended)
        };
        assert!(!is_close(0, true), "the section waits");
        // Its job has ended between the two reads.
        let found = [(16_000, false), (16_030, false), (26_100, false), (26_140, false)];
        assert_eq!(found.map(|(millis, is_full)| is_close(millis, is_full)), [true, true, true, false]);
    }
}
