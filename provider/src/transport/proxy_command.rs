//! `proxy_command`: the SSH connection uses the standard input and output of a command.

use std::sync::Arc;

use crate::transport::{
    error::TransportError, limits::Deadline, settings::ConnectionMethod, shared::Shared, ssh::Via,
    ssh_tunnel, target::Target, template, tunnel::Tunnel,
};

const METHOD: ConnectionMethod = ConnectionMethod::ProxyCommand;

pub(crate) async fn open(
    shared: &Arc<Shared>,
    target: &Target,
    arguments: &[String],
    deadline: Deadline,
) -> Result<Tunnel, TransportError> {
    let via = Via::Command(template::expand(arguments, target, METHOD)?);
    let spec = ssh_tunnel::spec(shared, target, METHOD, None, via).await?;
    ssh_tunnel::open(shared, target, spec, deadline).await
}
