//! The attribute `level` of a health check.

use super::enum_attribute::EnumAttribute;
use crate::client::Level;

/// A value of `level`; `None` is `auto`, the maximum level that the wrapper can check.
///
/// `JOBS`: whether `working` is a value. A runner reaches it only with jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequiredLevel<const JOBS: bool>(pub(crate) Option<Level>);

impl<const JOBS: bool> RequiredLevel<JOBS> {
    const ALL: &'static [(Self, &'static str)] = &[
        (Self(None), "auto"),
        Self::of(Level::Process),
        Self::of(Level::Ready),
        Self::of(Level::Polling),
        Self::of(Level::Working),
    ];

    const fn of(level: Level) -> (Self, &'static str) {
        (Self(Some(level)), level.as_str())
    }
}

impl<const JOBS: bool> EnumAttribute for RequiredLevel<JOBS> {
    const VALUES: &'static [(Self, &'static str)] =
        if JOBS { Self::ALL } else { Self::ALL.split_at(Self::ALL.len() - 1).0 };
}
