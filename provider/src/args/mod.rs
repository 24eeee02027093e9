//! Objects and texts of the configuration language, parsed once at the edge into types that cannot be wrong.
//!
//! Resources and the provider block share them. Each knows its schema, checks itself at validate with errors at its own paths, and
//! turns into what the layers below take.

pub mod assume_terminated;
pub mod closed;
pub mod duration;
pub mod manager;
pub mod number;
pub mod required;
pub mod retry;
pub mod timeouts;
