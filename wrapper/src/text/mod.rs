//! Texts that the outputs have in common: durations, and texts of other programs made visible.

pub(crate) mod duration;
pub mod visible;
