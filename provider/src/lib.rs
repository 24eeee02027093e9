//! The provider.
