//! What is known of the last requests of a section.

/// What the counters show of the last requests of a section. Failed requests after which the runner sends another one soon, as with status 500, show
/// nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Last {
    Accepted,
    Rejected,
    /// A failed health check without a rejected request; or failed requests that may have followed the accepted ones.
    Failed,
}
