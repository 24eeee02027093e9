//! The wrapper.
