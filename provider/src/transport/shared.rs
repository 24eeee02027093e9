//! What all tunnels of a connector share.

use crate::transport::{
    handshakes::HandshakeLimiter, key_store::KeyStore, limits::Limits, pool::SessionPool,
    settings::TrustSources,
};

pub(crate) struct Shared {
    pub(crate) trust: TrustSources,
    pub(crate) limits: Limits,
    pub(crate) handshakes: HandshakeLimiter,
    pub(crate) sessions: SessionPool,
    pub(crate) keys: KeyStore,
}
