//! `proxy_jump`: through one or more SSH servers. Each hop has its own user, key and host key, and its session is shared by all managers
//! behind it.

use std::sync::Arc;

use crate::transport::{
    error::TransportError, limits::Deadline, settings::ConnectionMethod, shared::Shared, ssh::Via,
    ssh_tunnel, target::Target, tunnel::Tunnel,
};

const METHOD: ConnectionMethod = ConnectionMethod::ProxyJump;

pub(crate) async fn open(
    shared: &Arc<Shared>,
    target: &Target,
    deadline: Deadline,
) -> Result<Tunnel, TransportError> {
    let mut via = Via::Tcp;
    // Held until the next session stands: it keeps the one that carries it.
    let mut last = None;
    for (index, hop) in target.hops.iter().enumerate() {
        let mut spec = ssh_tunnel::spec(shared, target, METHOD, Some((index, hop))).await?;
        spec.via = via;
        let key = Box::new(spec.key());
        let lease = ssh_tunnel::session(shared, spec, deadline)
            .await
            .map_err(|error| error.for_wrapper(&target.wrapper_address))?;
        // What comes next needs a permit of its own before it opens a channel here.
        lease.release_permit();
        via = Via::Session(lease.shared(), key);
        last = Some(lease);
    }
    let mut spec = ssh_tunnel::spec(shared, target, METHOD, None).await?;
    spec.via = via;
    let tunnel = ssh_tunnel::open(shared, target, spec, deadline).await;
    drop(last);
    tunnel
}
