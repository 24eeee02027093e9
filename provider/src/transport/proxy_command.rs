//! `proxy_command`: a command whose standard input and output carry the SSH connection.

use std::sync::Arc;

use crate::transport::{
    error::{Phase, TransportError},
    limits::Deadline,
    settings::ConnectionMethod,
    shared::Shared,
    ssh::Via,
    ssh_tunnel,
    target::Target,
    template::{Template, TemplateError},
    tunnel::Tunnel,
};

const METHOD: ConnectionMethod = ConnectionMethod::ProxyCommand;

pub(crate) async fn open(
    shared: &Arc<Shared>,
    target: &Target,
    template: &Result<Template, TemplateError>,
    deadline: Deadline,
) -> Result<Tunnel, TransportError> {
    let mut spec = ssh_tunnel::spec(shared, target, METHOD, None).await?;
    let expanded = template.clone().and_then(|template| template.expand(target, Some(&spec.username)));
    let arguments = expanded
        .map_err(|error| TransportError::at(Phase::Setup, spec.route.clone(), error.cause(METHOD)))?;
    spec.via = Via::Command(arguments);
    ssh_tunnel::open(shared, target, spec, deadline).await
}
