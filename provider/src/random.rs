//! Random numbers, for unique ids and for delays.

use std::cell::RefCell;

thread_local! {
    /// The random numbers of a simulation in this thread.
    static SOURCE: RefCell<Option<Box<dyn FnMut() -> u64>>> = const { RefCell::new(None) };
}

/// In this thread, the random numbers come from `source`: for a simulation, which repeats a run.
pub fn set_source(source: impl FnMut() -> u64 + 'static) {
    SOURCE.set(Some(Box::new(source)));
}

/// A random number. A UUID is random enough for ids and delays.
pub(crate) fn random() -> u64 {
    SOURCE.with_borrow_mut(|source| match source {
        Some(next) => next(),
        None => uuid::Uuid::new_v4().as_u64_pair().0,
    })
}
