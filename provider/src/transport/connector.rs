//! The connector: one for each provider block, from which all clients get their tunnels.

use std::{fmt, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::transport::{
    error::{Cause, Phase, TransportError},
    handshakes::HandshakeLimiter,
    limits::Limits,
    proxy_command, proxy_jump,
    settings::{ConnectionMethod, ConnectionSettings, Strategy},
    shared::Shared,
    ssh_command, ssh_tunnel,
    target::Target,
    template::{Template, TemplateError},
    tunnel::Tunnel,
};

/// What a phase may take after its limit to find out why it failed.
const SLACK: Duration = Duration::from_secs(1);

/// Opens tunnels to wrappers. Cheap to clone; all clones share sessions and limits.
///
/// Dropping the last clone and the last client ends the sessions.
#[derive(Clone)]
pub struct Connector {
    shared: Arc<Shared>,
    method: Arc<Method>,
}

/// A strategy with its template, as far as that could be read.
enum Method {
    Direct,
    ProxyJump,
    ProxyCommand(Result<Template, TemplateError>),
    SshCommand(Result<Template, TemplateError>),
}

impl Connector {
    /// Takes the settings over. Reads no file, connects to nothing, and cannot fail: what is wrong with the settings shows when a connection
    /// needs them.
    pub fn new(settings: ConnectionSettings) -> Self {
        let method = match &settings.strategy {
            Strategy::Direct => Method::Direct,
            Strategy::ProxyJump => Method::ProxyJump,
            Strategy::ProxyCommand(arguments) => Method::ProxyCommand(Template::parse(arguments)),
            Strategy::SshCommand(arguments) => Method::SshCommand(Template::parse(arguments)),
        };
        let limits =
            Limits::new(settings.connect_timeout, settings.call_timeout, settings.keepalive_interval);
        let handshakes = HandshakeLimiter::new(settings.max_handshakes);
        Self { shared: Arc::new(Shared::new(settings.trust, limits, handshakes)), method: Arc::new(method) }
    }

    /// A tunnel to the wrapper of a manager. One deadline bounds the whole: queueing, hops, logins and channels. It is the end of the
    /// operation that needs the tunnel, or the connection's own limit.
    pub(crate) async fn open(
        &self,
        target: &Target,
        operation: Option<Instant>,
    ) -> Result<Tunnel, TransportError> {
        let shared = &self.shared;
        let deadline = shared.limits.deadline(operation);
        let opening = async {
            match &*self.method {
                Method::Direct => {
                    let spec = ssh_tunnel::spec(shared, target, ConnectionMethod::Direct, None).await?;
                    ssh_tunnel::open(shared, target, spec, deadline).await
                }
                Method::ProxyJump => proxy_jump::open(shared, target, deadline).await,
                Method::ProxyCommand(template) => {
                    proxy_command::open(shared, target, template, deadline).await
                }
                Method::SshCommand(template) => ssh_command::open(shared, target, template, deadline).await,
            }
        };
        // Each phase ends at the deadline by itself, and reports that. What remains is a wait for another caller's attempt, or for a file.
        let opened = tokio::time::timeout_at(deadline.end() + SLACK, Box::pin(opening)).await;
        opened.unwrap_or_else(|_| {
            let cause = Cause::TimedOut { limit: deadline.whole() };
            Err(TransportError::at(Phase::Setup, target.route(self.method.kind()), cause))
        })
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.shared.limits
    }
}

impl Method {
    /// The name of the attribute, which messages use, too.
    fn kind(&self) -> ConnectionMethod {
        match self {
            Self::Direct => ConnectionMethod::Direct,
            Self::ProxyJump => ConnectionMethod::ProxyJump,
            Self::ProxyCommand(_) => ConnectionMethod::ProxyCommand,
            Self::SshCommand(_) => ConnectionMethod::SshCommand,
        }
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("method", &self.method.kind()).finish_non_exhaustive()
    }
}
