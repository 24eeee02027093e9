//! Texts that the outputs have in common: durations, names of enum values, and texts of other programs made visible.

pub(crate) mod duration;
pub(crate) mod names;
pub mod visible;
