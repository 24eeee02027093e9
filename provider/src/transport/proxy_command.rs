//! `proxy_command`: a command whose standard input and output carry the SSH connection.

use super::settings::ConnectionMethod;
use crate::transport::{
    error::{Phase, TransportError},
    limits::Deadline,
    shared::Shared,
    ssh::Via,
    ssh_tunnel,
    target::Target,
    template::{Template, TemplateError},
    tunnel::Tunnel,
};
use std::sync::Arc;

pub(crate) async fn open(
    shared: &Arc<Shared>,
    target: &Target,
    method: ConnectionMethod,
    template: &Result<Template, TemplateError>,
    deadline: Deadline,
) -> Result<Tunnel, TransportError> {
    let mut spec = ssh_tunnel::spec(shared, target, method, None).await?;
    let expanded = template.clone().and_then(|template| template.expand(target, Some(&spec.username)));
    let arguments = expanded
        .map_err(|error| TransportError::at(Phase::Setup, spec.route.clone(), error.cause(method)))?;
    spec.via = Via::Command(arguments);
    ssh_tunnel::open(shared, target, spec, deadline).await
}
