//! The fuzz targets: one function for each parser of external data.
//!
//! A target panics if its parser violates a property. The test suite runs the targets for a few seconds with inputs derived from real files
//! (`GRIT_FUZZ_SECONDS` sets the time, `GRIT_FUZZ_SEED` repeats a run); the crate in `tests/fuzz/` runs them with libFuzzer. Each finding
//! becomes a test next to the parser.

pub use crate::transport::fuzz::{known_hosts, private_key, template};

#[cfg(test)]
mod grow;
#[cfg(test)]
mod tests;
