//! Why GitLab did not answer a question.

use std::{error::Error, io, iter::successors, time::Duration};

use grit_ssh::is_unknown_name;
use http::StatusCode;
use thiserror::Error;
use tokio_rustls::rustls::{self, AlertDescription};

/// Contains no header and no URL.
#[derive(Debug, Clone, Error)]
pub enum GitlabError {
    #[error("no CA certificates could be read on this machine")]
    NoAuthorities,
    #[error("TLS cannot be set up: {0}")]
    Tls(String),
    #[error("the request failed: {0}")]
    Request(String),
    /// The host name does not exist, or the two sides of TLS do not accept each other: another attempt has the same result.
    #[error("the request failed: {0}")]
    NoConnection(String),
    #[error("the proxy of the environment is not an `http` or `https` proxy")]
    UnsupportedProxy,
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
        let texts = successors(Some(error), |&error| error.source()).map(ToString::to_string);
        let text = texts.collect::<Vec<_>>().join(": ");
        // The texts are those of the name service, and of hyper-util's tunnels for a proxy that answers 407.
        let has_text = is_unknown_name(&text) || text.contains("proxy authorization required");
        let is_permanent = has_text || causes(error).any(is_refusal_of_tls);
        if is_permanent { Self::NoConnection(text) } else { Self::Request(text) }
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
            | Self::NoConnection(_)
            | Self::UnsupportedProxy
            | Self::TooLarge(_)
            | Self::NotGitlab
            | Self::TooManyJobs
            | Self::NoSystemIds => false,
        }
    }

    /// Whether GitLab may have carried out the request.
    pub(crate) fn may_have_arrived(&self) -> bool {
        match self {
            Self::Status(status) => status.is_server_error(),
            error => error.is_transient(),
        }
    }

    /// Whether GitLab, or something before it, has answered with a refusal.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Status(status) if status.is_client_error())
    }
}

/// An error and those that it contains. The source of an [`io::Error`] is the source of the error in it, which is left out.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    successors(Some(error), |&error| {
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        inner.map(|inner| inner as &(dyn Error + 'static)).or_else(|| error.source())
    })
}

/// An interrupted handshake is an error of the connection.
fn is_refusal_of_tls(error: &(dyn Error + 'static)) -> bool {
    use rustls::Error::{AlertReceived, InvalidCertificate, InvalidMessage, PeerIncompatible};
    match error.downcast_ref() {
        Some(InvalidCertificate(_) | InvalidMessage(_) | PeerIncompatible(_)) => true,
        // The others are those of a server that is just being started or stopped.
        Some(AlertReceived(alert)) => {
            ![AlertDescription::CloseNotify, AlertDescription::InternalError, AlertDescription::UserCanceled]
                .contains(alert)
        }
        _ => false,
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
