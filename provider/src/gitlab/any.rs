//! One request to GitLab: over HTTPS or, in a simulation, without a connection.

use std::{fmt, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use http::{HeaderValue, Method};
use tokio::{sync::OnceCell, time::timeout};

use super::{
    answer::{Answer, Body},
    error::GitlabError,
    https::Https,
    instance::Instance,
    proxy::Proxy,
};

/// The maximum duration of a request.
const REQUEST_LIMIT: Duration = Duration::from_secs(15);

/// Makes the connections to GitLab.
#[derive(Clone, Default)]
pub enum Connections {
    #[default]
    Https,
    Simulated(Arc<dyn SimulatedGitlab>),
}

/// GitLab in a simulation.
pub trait SimulatedGitlab: Send + Sync {
    /// The answer to a request with this token. The request ends after some time in any case.
    fn call(
        &self,
        method: Method,
        url: String,
        token: HeaderValue,
    ) -> BoxFuture<'_, Result<Answer, GitlabError>>;
}

/// The connection to one instance.
#[expect(clippy::large_enum_variant, reason = "there is one for each instance")]
pub(super) enum Connection {
    Https {
        /// In PEM format, besides the authorities of the machine.
        ca_certificate: Option<String>,
        proxy: Option<Proxy>,
        client: OnceCell<Https>,
    },
    Simulated(Arc<dyn SimulatedGitlab>),
}

impl Connections {
    /// Opens no connection, and reads no file.
    pub(super) fn connection(&self, ca_certificate: Option<String>, proxy: Option<Proxy>) -> Connection {
        match self {
            Self::Https => Connection::Https { ca_certificate, proxy, client: OnceCell::new() },
            Self::Simulated(gitlab) => Connection::Simulated(Arc::clone(gitlab)),
        }
    }
}

impl Connection {
    /// Sends one request. Dropping the future cancels it.
    pub(super) async fn call(
        &self,
        instance: &Instance,
        method: Method,
        url: String,
        token: &HeaderValue,
        body: Body,
    ) -> Result<Answer, GitlabError> {
        let answer = match self {
            Self::Https { ca_certificate, proxy, client } => {
                let new = || Https::new(instance.uses_tls(), ca_certificate.as_deref(), proxy.as_ref());
                let client = client.get_or_try_init(new).await?;
                timeout(REQUEST_LIMIT, client.call(method, &url, token, body)).await
            }
            Self::Simulated(gitlab) => timeout(REQUEST_LIMIT, gitlab.call(method, url, token.clone())).await,
        };
        answer.map_err(|_| GitlabError::Timeout(REQUEST_LIMIT))?
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Https => "Https",
            Self::Simulated(_) => "Simulated",
        })
    }
}
