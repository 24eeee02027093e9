//! The result of the last job request of a section.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Last {
    #[default]
    Nothing,
    Accepted,
    /// Unknown: requests were accepted and failed since the last probe.
    Mixed,
    Rejected,
    Unanswered,
    Failed,
    /// A health check failed without a request.
    NotSent,
}
