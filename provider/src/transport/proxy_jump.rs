//! `proxy_jump`: through one or more SSH servers. Each jump host has its own user, key and host key. All managers behind it share its
//! session.

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
    // Keeps the session of the last jump host open until the next session has a channel of it.
    let mut last = None;
    for (index, hop) in target.hops.iter().enumerate() {
        let spec = ssh_tunnel::spec(shared, target, METHOD, Some((index, hop)), via).await?;
        let spec = Arc::new(spec);
        let session = ssh_tunnel::session(shared, target, &spec, deadline).await?;
        // The next session needs its own permit before it opens a channel here.
        session.release_permit();
        via = Via::Session(session.shared(), Box::new(spec.key.clone()));
        last = Some(session);
    }
    let spec = ssh_tunnel::spec(shared, target, METHOD, None, via).await?;
    let tunnel = ssh_tunnel::open(shared, target, spec, deadline).await;
    drop(last);
    tunnel
}
