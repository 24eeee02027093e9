//! When a section of the runner may send its next request.

use std::time::Duration;

use tokio::time::Instant;

use super::read::Read;
use crate::runner::runner_config::RunnerConfig;

/// So close to the next turn of a section, SIGQUIT is not sent.
/// It is longer than the time from the beginning of a read to the signal.
const MARGIN: Duration = Duration::from_millis(130);

/// The longest wait for the first turn. With longer intervals, a turn at just this moment is improbable.
const LONGEST_TURN: Duration = Duration::from_secs(6);

/// Only two reads that are so close show when a turn was. Between two probes, there are several.
const NEAR: Duration = Duration::from_millis(300);

/// The turns of the sections, as far as the reads have shown them.
#[derive(Debug, Default)]
pub(super) struct Turns {
    count: Option<u64>,
    /// The end of the first read with this count.
    since: Option<Instant>,
    /// The last turn was between these moments.
    last: Option<(Instant, Instant)>,
    last_read: Option<Instant>,
}

impl Turns {
    pub(super) fn add(&mut self, read: &Read<'_>) {
        let before = self.last_read.replace(read.began);
        let count = read.metrics.feeds;
        if self.since.is_none() || self.count != count {
            let near = before.filter(|before| read.ended <= *before + NEAR && self.count < count);
            self.last = near.map(|before| (before, read.ended));
            self.since = Some(read.ended);
        }
        self.count = count;
    }

    /// Whether a section may get its next turn before a signal arrives.
    pub(super) fn is_close(&self, config: Option<&RunnerConfig>, now: Instant) -> bool {
        let (Some(interval), Some(_), Some(since)) = (config.and_then(interval), self.count, self.since)
        else {
            return false;
        };
        match self.last {
            // A disabled section gets no turn, so that the next one may follow after several intervals.
            Some((first, last)) => {
                let phase = now.saturating_duration_since(first).as_nanos() % interval.as_nanos();
                let is_next = phase + MARGIN.as_nanos() >= interval.as_nanos()
                    || phase < (last - first + MARGIN).as_nanos();
                is_next && now >= last + interval / 2
            }
            None => now < since + LONGEST_TURN.min(interval + MARGIN),
        }
    }
}

/// The interval between the turns of two sections; `None` if it is too short to send a signal in between.
fn interval(config: &RunnerConfig) -> Option<Duration> {
    let turn =
        config.check_interval / u32::try_from(config.sections.len()).ok().filter(|count| *count > 0)?;
    (turn > 3 * MARGIN).then_some(turn)
}
