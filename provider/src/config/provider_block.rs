//! The provider block.

use std::fmt;

use grit_plugin::schema::{Number, Schema, Value, is_known, number, object, object_schema};
use grit_ssh::{Connector, HANDSHAKES, HANDSHAKES_PER_HOST, Selectors};

use super::{
    gitlab::{GitlabArgs, Unusable},
    number::{check_whole, whole},
    object::{check_object, object},
    retry::RetryArgs,
    ssh::SshArgs,
};
use crate::{
    client::{Clients, Contacts},
    fleet::{Retry, receipt::NoReceipt},
    gitlab::{Connections, Gitlab},
};

object! {
    /// Has no `Debug`, because it contains secrets.
    pub struct ProviderArgs {
        ssh: Value<SshArgs> = object(SshArgs::attributes()) =>
            "Connection settings for the runner managers. **Precedence, except for `host_key`: this object, then the environment \
             variable, then the runner manager.**", check_object;
        gitlab: Value<GitlabArgs> = object(GitlabArgs::attributes()) =>
            "Access to GitLab. A health check succeeds only if GitLab confirms each runner manager: its runner is not paused. After a drain, the \
             provider reads from GitLab which jobs of the runner manager are still running, and warns \
             about lost jobs. Without a token, the provider sends no request.",
            check_object;
        retry: Value<RetryArgs> = object(RetryArgs::attributes("see the resources")) =>
            "Retries of failed connections. `retry` of a resource takes precedence.", check_object;
        max_parallel: Value<Number> = number => format!(
            "Maximum number of SSH connections that are established at the same time. Default {HANDSHAKES}; a larger value has no \
             further effect. At most {HANDSHAKES_PER_HOST} connections to one server are established at the same time. A resource always \
             waits for all its runner managers in parallel."
        ), check_whole(1..=10_000);
    }
}

pub(crate) fn schema() -> Schema {
    object_schema(
        0,
        "Updates GitLab Runner managers without downtime, inside `terraform apply`: new managers become healthy first, old runners finish \
         their jobs, and then their instances are destroyed.",
        ProviderArgs::attributes(),
    )
}

impl ProviderArgs {
    /// Whether the connection needs `address` of a runner manager; `None` while the value that decides it is unknown.
    pub(crate) fn needs_address(&self) -> Option<bool> {
        match &self.ssh {
            Value::Null => Some(true),
            Value::Unknown => None,
            Value::Value(ssh) => is_known(&ssh.ssh_command).then(|| ssh.strategy().selectors().address),
        }
    }

    /// Sets missing values from environment variables.
    #[must_use]
    pub(crate) fn or_environment(self, variable: impl Fn(&str) -> Option<String>) -> Self {
        let ssh = match self.ssh {
            Value::Null => Value::Value(SshArgs::default()),
            ssh => ssh,
        };
        let ssh = match ssh {
            Value::Value(ssh) => Value::Value(ssh.or_environment(&variable)),
            ssh => ssh,
        };
        Self { ssh, gitlab: GitlabArgs::or_environment(self.gitlab, variable), ..self }
    }
}

/// A provider block without unknown values, with the connector that all calls share.
pub(crate) struct Configuration {
    connector: Connector,
    pub(super) clients: Clients,
    pub(crate) contacts: Contacts,
    pub(super) ssh: SshArgs,
    gitlab: Option<Result<Gitlab, Unusable>>,
    retry: Option<RetryArgs>,
    /// `CI_JOB_URL`. GitLab Runner sets it for the jobs that it runs, such as the one that may be running this apply.
    pub(super) job_url: String,
}

impl Configuration {
    /// Warns about values of environment variables that a connection cannot use. Reads the files.
    pub(crate) fn check_variables(&self) {
        self.ssh.check_variables();
    }

    /// Opens no connection and reads no file. `variable` reads environment variables, once.
    pub(crate) fn new(
        block: ProviderArgs,
        simulated: Option<(Clients, Connections)>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Self {
        let job_url = variable("CI_JOB_URL").unwrap_or_default();
        let block = block.or_environment(&variable);
        let max_handshakes = whole(&block.max_parallel).unwrap_or(HANDSHAKES).clamp(1, HANDSHAKES);
        let ssh = block.ssh.unwrap_or_default();
        let connector = Connector::new(ssh.settings(max_handshakes));
        let (clients, connections) =
            simulated.unwrap_or_else(|| (Clients::new(connector.clone()), Connections::Https));
        let gitlab = block.gitlab.as_option().map(|gitlab| gitlab.client(&connections, &variable));
        let (contacts, retry) = (Contacts::default(), block.retry.as_option());
        Self { connector, clients, contacts, ssh, gitlab, retry, job_url }
    }

    /// Where to ask for the receipt of a drain; `None` if it is not configured.
    pub(crate) fn gitlab(&self) -> Option<Result<&Gitlab, NoReceipt>> {
        self.gitlab.as_ref().map(|gitlab| gitlab.as_ref().map_err(|unusable| unusable.into()))
    }

    /// The URL of GitLab, if the token is sent to it without encryption.
    pub(crate) fn gitlab_in_clear(&self) -> Option<String> {
        let gitlab = self.gitlab.as_ref()?.as_ref().ok()?;
        gitlab.instance().is_in_clear().then(|| gitlab.instance().to_string())
    }

    pub(crate) fn ignores_host_keys(&self) -> bool {
        self.ssh.ignores_host_keys()
    }

    /// The user of a runner manager selects no host if the provider block has a user, which takes precedence.
    pub(crate) fn selectors(&self) -> Selectors {
        let selectors = self.connector.selectors();
        Selectors { username: selectors.username && !self.ssh.has_username(), ..selectors }
    }

    /// The retry policy. Precedence: resource, provider block, default.
    pub(crate) fn retry(&self, resource: Option<&RetryArgs>, default_attempts: Option<u32>) -> Retry {
        RetryArgs::resolve(resource, self.retry.as_ref(), default_attempts)
    }
}

/// Without the `ssh` object, which contains secrets.
impl fmt::Debug for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Configuration").field("connector", &self.connector).finish_non_exhaustive()
    }
}
