//! `proxy_jump`: through one or more SSH servers. Each hop has its own user, key and host key, and its session is shared by all managers
//! behind it.

use crate::transport::{
    Inner, JumpOptions, Phase, Route, Strategy, Target, TransportError, Tunnel,
    limits::Deadline,
    over_ssh::{self, Ask, Way},
    trust::Pinned,
};
use async_trait::async_trait;
use std::sync::Arc;

/// The hops, the first of which is connected to directly.
#[derive(Debug)]
pub(crate) struct ProxyJump(pub(crate) Vec<JumpOptions>);

#[async_trait]
impl Strategy for ProxyJump {
    fn name(&self) -> &'static str {
        "proxy_jump"
    }

    async fn open(
        &self,
        inner: &Arc<Inner>,
        target: &Target,
        deadline: Deadline,
    ) -> Result<Tunnel, TransportError> {
        let mut way = Way::Direct;
        // Held until the next session stands: it keeps the one that carries it.
        let mut last = None;
        for (index, hop) in self.0.iter().enumerate() {
            let ask = self.hop(inner, target, hop, index).await?;
            let key = format!("{:?}", ask.key(&way));
            let lease = over_ssh::session(inner, ask, &way, deadline)
                .await
                .map_err(|error| error.for_target(target))?;
            // What comes next needs a turn of its own before it opens a channel here.
            lease.settle();
            way = Way::Through { bastion: lease.shared(), key };
            last = Some(lease);
        }
        let ask = over_ssh::target_ask(inner, target, self.name()).await?;
        let tunnel = over_ssh::tunnel(inner, target, ask, &way, deadline).await;
        drop(last);
        tunnel
    }
}

impl ProxyJump {
    async fn hop(
        &self,
        inner: &Inner,
        target: &Target,
        hop: &JumpOptions,
        index: usize,
    ) -> Result<Ask, TransportError> {
        let route =
            Route { host: hop.address.clone(), hop: Some(index + 1), ..Route::of(target, self.name()) };
        match inner.keyring.of_hop(&inner.options, target, hop, index).await {
            Ok(identity) => Ok(Ask {
                route: Route { username: Some(identity.username.clone()), ..route },
                identity,
                host_key: hop
                    .host_key
                    .clone()
                    .map(|keys| Pinned { attribute: format!("ssh.proxy_jump[{index}].host_key"), keys }),
            }),
            Err(cause) => Err(TransportError::at(Phase::Setup, route, cause)),
        }
    }
}
