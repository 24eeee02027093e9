//! What all tunnels of a connector share.

use crate::transport::{
    handshakes::HandshakeLimiter, key_store::KeyStore, limits::Limits, pool::SessionPool,
    settings::TrustSources,
};

/// What all clones of a connector share.
pub(crate) struct Shared {
    pub(crate) trust: TrustSources,
    pub(crate) limits: Limits,
    pub(crate) handshakes: HandshakeLimiter,
    pub(crate) sessions: SessionPool,
    pub(crate) keys: KeyStore,
}

impl Shared {
    pub(crate) fn new(trust: TrustSources, limits: Limits, handshakes: HandshakeLimiter) -> Self {
        Self { trust, limits, handshakes, sessions: SessionPool::default(), keys: KeyStore::default() }
    }
}
