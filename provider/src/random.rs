//! Random numbers, for unique ids and for delays.

use std::cell::Cell;

thread_local! {
    /// The next number of a simulation in this thread.
    static SEED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// In this thread, the random numbers follow from the seed: for a simulation, which repeats a run.
pub fn seed(seed: u64) {
    SEED.set(Some(seed));
}

/// A random number. A UUID is random enough for ids and delays.
pub(crate) fn random() -> u64 {
    match SEED.get() {
        None => uuid::Uuid::new_v4().as_u64_pair().0,
        Some(seed) => {
            SEED.set(Some(seed.wrapping_add(1)));
            // The finalizer of SplitMix64.
            let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        }
    }
}
