//! The settings of the lab's GitLab: when it assigns a job, and when it responds.

use std::{ops::RangeInclusive, time::Duration};

/// What GitLab does with a job request that has the newest `last_update`: nothing has changed since the last response to this runner.
/// Every other request is handled when it arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LongPolling {
    /// It is also handled when it arrives (Workhorse's `apiCiLongPollingDuration` is 0).
    Off,
    /// As Workhorse does it: it is held until something changes or this time is over, and the response is 204 without a job. Only the next
    /// request can get a job.
    Held(Duration),
    /// Worse than GitLab: it is held in the same way, and then handled. A job is assigned at the end of a wait.
    AssignsLate(Duration),
}

impl LongPolling {
    /// How long a request is held.
    pub(super) fn limit(self) -> Duration {
        match self {
            LongPolling::Off => Duration::ZERO,
            LongPolling::Held(limit) | LongPolling::AssignsLate(limit) => limit,
        }
    }
}

#[derive(Debug)]
pub(super) struct Settings {
    pub(super) long_polling: LongPolling,
    /// Whether GitLab supports the two-phase job commit. Its feature flag is off by default, and the feature is to be removed.
    pub(super) two_phase_commit: bool,
    latency: RangeInclusive<Duration>,
    /// The state of the generator of latencies. Every run has the same sequence.
    generator: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            long_polling: LongPolling::Held(Duration::from_secs(50)),
            two_phase_commit: false,
            latency: Duration::from_millis(50)..=Duration::from_millis(300),
            generator: 0,
        }
    }
}

impl Settings {
    pub(super) fn set_latency(&mut self, latency: RangeInclusive<Duration>) {
        self.latency = latency;
    }

    /// The latency of the next response.
    pub(super) fn next_latency(&mut self) -> Duration {
        let share = f64::from(self.next_number()) / f64::from(u32::MAX);
        let (from, to) = (*self.latency.start(), *self.latency.end());
        from + to.saturating_sub(from).mul_f64(share)
    }

    /// A step of the generator SplitMix64.
    fn next_number(&mut self) -> u32 {
        self.generator = self.generator.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.generator;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_differ_and_are_same_in_each_run() {
        let sequence = || -> Vec<_> {
            let mut settings = Settings::default();
            (0..1000).map(|_| settings.next_latency().as_millis()).collect()
        };
        let latencies = sequence();
        assert_eq!(latencies, sequence());
        let (least, most) = (latencies.iter().min().unwrap(), latencies.iter().max().unwrap());
        assert!((50..60).contains(least) && (290..=300).contains(most), "{least} to {most}");
        let mean = latencies.iter().sum::<u128>() / 1000;
        assert!((165..185).contains(&mean), "{mean}");
    }
}
