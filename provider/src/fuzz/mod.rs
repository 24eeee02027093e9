//! What fuzzers call: one function for each parser that reads what others wrote.
//!
//! A function panics when its parser breaks a promise, and returns for every other input. The suite drives them for some seconds with
//! inputs grown from real files (`GRIT_FUZZ_SECONDS` makes that longer, `GRIT_FUZZ_SEED` repeats a run); the crate in `tests/fuzz/` gives them to
//! libFuzzer. What they find becomes a test beside the parser.

pub use crate::transport::fuzz::{known_hosts, private_key, template};

#[cfg(test)]
mod grow;
#[cfg(test)]
mod tests;
