//! Why GitLab did not answer a question.

use std::{error::Error, iter::successors, time::Duration};

use http::StatusCode;
use thiserror::Error;

/// Contains no header and no URL.
#[derive(Debug, Error)]
pub enum GitlabError {
    #[error("no CA certificates could be read on this machine")]
    NoAuthorities,
    #[error("TLS cannot be set up: {0}")]
    Tls(String),
    #[error("the request failed: {0}")]
    Request(String),
    #[error("no response within {} s", .0.as_secs())]
    Timeout(Duration),
    #[error("{}", of_status(*.0))]
    Status(StatusCode),
    #[error("the response is larger than {} MiB", .0 >> 20)]
    TooLarge(usize),
    #[error("the response is not from GitLab's API")]
    NotGitlab,
    #[error("this GitLab is too old to list the jobs of one runner manager (`system_id`)")]
    NoSystemIds,
    #[error("GitLab lists more than 2000 jobs")]
    TooManyJobs,
}

impl GitlabError {
    /// An error with its causes.
    pub(super) fn request(error: &(dyn Error + 'static)) -> Self {
        let causes = successors(Some(error), |&error| error.source()).map(ToString::to_string);
        Self::Request(causes.collect::<Vec<_>>().join(": "))
    }

    /// Whether another attempt may succeed.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Request(_) | Self::Timeout(_) => true,
            Self::Status(status) => {
                status.is_server_error()
                    || [StatusCode::TOO_MANY_REQUESTS, StatusCode::REQUEST_TIMEOUT].contains(status)
            }
            Self::NoAuthorities
            | Self::Tls(_)
            | Self::TooLarge(_)
            | Self::NotGitlab
            | Self::TooManyJobs
            | Self::NoSystemIds => false,
        }
    }

    /// Whether GitLab, or something before it, has answered with a refusal.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Status(status) if status.is_client_error())
    }
}

fn of_status(status: StatusCode) -> String {
    let meaning = match status {
        StatusCode::UNAUTHORIZED => " (the token is invalid, expired or revoked)",
        StatusCode::FORBIDDEN => " (the token's user or scope has no access)",
        StatusCode::NOT_FOUND => " (the token's user cannot see it, or it does not exist)",
        status if status.is_redirection() => {
            " (a redirect; the provider does not follow redirects, because the token would be sent to another address)"
        }
        _ => "",
    };
    format!("the HTTP status was {}{meaning}", status.as_u16())
}
