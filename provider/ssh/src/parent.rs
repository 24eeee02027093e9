//! What an SSH session runs over, if not TCP.

use async_trait::async_trait;

use crate::error::TransportError;

/// The connection below an SSH session: a jump host's session, or a command.
#[async_trait]
pub(crate) trait ParentTransport: Send + Sync {
    /// Adds the observations of the parent to an error of its session, or replaces the error by its cause.
    async fn enrich(&self, error: TransportError) -> TransportError;
}
