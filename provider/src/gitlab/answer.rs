//! GitLab's answer to one request.

use http::StatusCode;

/// An answer of GitLab with any status.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    /// GitLab's header `x-next-page`: empty on the last page.
    pub next_page: Option<String>,
    /// GitLab's header `x-total`, which it does not send for a list that is limited to a system id.
    pub has_total: bool,
    pub body: Vec<u8>,
}

/// How much of the body of an answer is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Body {
    Whole,
    /// The first bytes, if there are any.
    Start,
}
