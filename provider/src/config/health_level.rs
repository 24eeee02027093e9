//! The attribute `level` of a health check.

use super::enum_attribute::EnumAttribute;
use crate::client::Level;

/// A value of `level`.
///
/// `JOBS`: whether `working` is a value. A runner reaches it only with jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequiredLevel<const JOBS: bool>(pub(crate) Level);

impl<const JOBS: bool> RequiredLevel<JOBS> {
    const ALL: &'static [(Self, &'static str)] = &[
        Self::of(Level::Process),
        Self::of(Level::Ready),
        Self::of(Level::Polling),
        Self::of(Level::Working),
    ];

    const fn of(level: Level) -> (Self, &'static str) {
        (Self(level), level.as_str())
    }
}

impl<const JOBS: bool> EnumAttribute for RequiredLevel<JOBS> {
    const VALUES: &'static [(Self, &'static str)] =
        if JOBS { Self::ALL } else { Self::ALL.split_at(Self::ALL.len() - 1).0 };
    /// A lower level does not prove that the runner takes jobs, and an idle runner reaches no higher one.
    const DEFAULT: Self = Self(Level::Polling);
}
