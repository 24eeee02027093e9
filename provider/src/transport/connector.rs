//! The connector of a provider block: it opens the tunnels of all clients.

use std::{fmt, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::transport::{
    error::{Cause, Phase, TransportError},
    handshakes::HandshakeLimiter,
    key_store::KeyStore,
    limits::Limits,
    pool::SessionPool,
    proxy_command, proxy_jump,
    settings::{ConnectionSettings, Strategy},
    shared::Shared,
    ssh::Via,
    ssh_command, ssh_tunnel,
    target::Target,
    tunnel::Tunnel,
};

/// Time for a phase to report its error after the deadline.
const ERROR_GRACE: Duration = Duration::from_secs(1);

/// Opens tunnels to wrappers. Clones share sessions and limits.
///
/// Dropping the last clone and the last client closes the sessions.
#[derive(Clone)]
pub struct Connector {
    shared: Arc<Shared>,
    strategy: Arc<Strategy>,
}

impl Connector {
    /// Reads no file, and opens no connection. Invalid settings are reported when a connection needs them.
    pub fn new(settings: ConnectionSettings) -> Self {
        let shared = Shared {
            limits: Limits::new(settings.connect_timeout, settings.call_timeout, settings.keepalive_interval),
            handshakes: HandshakeLimiter::new(settings.max_handshakes),
            trust: settings.trust,
            sessions: SessionPool::default(),
            keys: KeyStore::default(),
        };
        Self { shared: Arc::new(shared), strategy: Arc::new(settings.strategy) }
    }

    /// A tunnel to the wrapper of a runner manager. One deadline limits everything, from the queue to the channel: `operation`, the end of
    /// the operation that needs the tunnel, or the connection timeout.
    pub(crate) async fn open(
        &self,
        target: &Target,
        operation: Option<Instant>,
    ) -> Result<Tunnel, TransportError> {
        let shared = &self.shared;
        let deadline = shared.limits.deadline(operation);
        let method = self.strategy.method();
        let opening = async {
            match &*self.strategy {
                Strategy::Direct => {
                    let spec = ssh_tunnel::spec(shared, target, method, None, Via::Tcp).await?;
                    ssh_tunnel::open(shared, target, spec, deadline).await
                }
                Strategy::ProxyJump => proxy_jump::open(shared, target, deadline).await,
                Strategy::ProxyCommand(arguments) => {
                    proxy_command::open(shared, target, arguments, deadline).await
                }
                Strategy::SshCommand(arguments) => {
                    ssh_command::open(shared, target, arguments, deadline).await
                }
            }
        };
        // Each phase ends at the deadline and reports it. This limits the wait for another caller's attempt, or for a file.
        let opened = tokio::time::timeout_at(deadline.end() + ERROR_GRACE, Box::pin(opening)).await;
        opened.unwrap_or_else(|_| {
            let cause = Cause::TimedOut { limit: deadline.whole() };
            Err(TransportError::at(Phase::Setup, target.route(method), cause))
        })
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.shared.limits
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("method", &self.strategy.method()).finish_non_exhaustive()
    }
}
