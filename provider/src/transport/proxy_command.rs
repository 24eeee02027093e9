//! `proxy_command`: a command whose standard input and output carry the SSH connection.

use crate::transport::{
    Inner, Phase, Strategy, Target, TransportError, Tunnel,
    error::{Cause, InvalidOption},
    limits::Deadline,
    over_ssh::{self, Way},
    template::{Template, TemplateError},
};
use async_trait::async_trait;
use std::sync::Arc;

/// The command, as far as it could be read.
#[derive(Debug)]
pub(crate) struct ProxyCommand(pub(crate) Result<Template, TemplateError>);

#[async_trait]
impl Strategy for ProxyCommand {
    fn name(&self) -> &'static str {
        "proxy_command"
    }

    async fn open(
        &self,
        inner: &Arc<Inner>,
        target: &Target,
        deadline: Deadline,
    ) -> Result<Tunnel, TransportError> {
        let ask = over_ssh::target_ask(inner, target, self.name()).await?;
        let expanded = self.0.clone().and_then(|it| it.expand(target, ask.route.username.as_deref()));
        let arguments = expanded.map_err(|error| {
            TransportError::at(Phase::Setup, ask.route.clone(), unusable(self.name(), &error))
        })?;
        over_ssh::tunnel(inner, target, ask, &Way::Command(arguments), deadline).await
    }
}

/// A template that cannot be used, as the error of its attribute.
pub(crate) fn unusable(strategy: &str, error: &TemplateError) -> Cause {
    Cause::Option(invalid(strategy, error))
}

/// The attribute of a template, down to the argument, and what is wrong with it.
pub(crate) fn invalid(strategy: &str, error: &TemplateError) -> InvalidOption {
    let argument = error.argument().map(|index| format!("[{index}]")).unwrap_or_default();
    InvalidOption { attribute: format!("ssh.{strategy}{argument}"), problem: error.to_string() }
}
