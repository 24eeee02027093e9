//! The random numbers of one run: the same seed gives the same numbers on every machine.

use std::time::Duration;

/// SplitMix64.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }

    /// A number below `end`, which is above 0.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(super) fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    /// The same. What never happens draws nothing, so that the runs without it stay as they are.
    pub(super) fn rarely(&mut self, chance: u64) -> bool {
        chance > 0 && self.percent(chance)
    }

    pub(super) fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to - from + 1))
    }

    pub(super) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[usize::try_from(self.below(from.len() as u64)).unwrap_or_default()]
    }
}

/// The finalizer of SplitMix64.
fn mixed(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The random numbers of the provider in a run.
pub(super) fn of_provider(seed: u64) -> impl FnMut() -> u64 {
    let mut numbers = seed..;
    move || numbers.next().map_or(0, mixed)
}
