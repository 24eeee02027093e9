//! What the calls of one process share: the provider block, and what this run has seen.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use grit_plugin::{
    Block, Problem, Problems, Walk, call,
    schema::{AttributePath, Schema, Value, is_known},
};
use grit_ssh::{AddressError, Selectors};
use parking_lot::RwLock;

use crate::{
    client::Clients,
    config::{
        manager::{RunnerManagerArgs, RunnerManagers},
        object::Object as _,
        provider_block::{self, Configuration, ProviderArgs},
        same_manager,
    },
    explain::{plan, protocol, values},
    gitlab::Connections,
    manager::{Identities, at},
    random::random,
    run::{Event, Row, Run},
};

/// What the calls of one process share.
#[derive(Debug, Default)]
pub struct Context {
    block: RwLock<ProviderBlock>,
    /// The connections and the environment variables of a simulation.
    simulated: Option<((Clients, Connections), BTreeMap<String, String>)>,
    pub(crate) run: Run,
}

/// The provider block, as far as Terraform has sent it.
#[derive(Debug, Default)]
enum ProviderBlock {
    #[default]
    Missing,
    /// Checked, and not configured yet: whether its connection needs `address` of a runner manager.
    Checked {
        needs_address: Option<bool>,
    },
    /// A value is unknown: a plan whose provider block depends on resources of the apply.
    Unknown,
    Known(Arc<Configuration>),
}

impl Context {
    /// The context of a simulation.
    pub(crate) fn simulated(
        clients: Clients,
        gitlab: Connections,
        variables: BTreeMap<String, String>,
    ) -> Self {
        Self { simulated: Some(((clients, gitlab), variables)), ..Self::default() }
    }

    /// The configuration, or `None` before it is known.
    pub(crate) fn configuration(&self) -> Option<Arc<Configuration>> {
        match &*self.block.read() {
            ProviderBlock::Known(configuration) => Some(Arc::clone(configuration)),
            ProviderBlock::Missing | ProviderBlock::Checked { .. } | ProviderBlock::Unknown => None,
        }
    }

    /// The configuration for a connection.
    pub(crate) fn configured(&self) -> Result<Arc<Configuration>, Problem> {
        self.configuration().ok_or_else(|| protocol::not_configured(self.is_unknown()))
    }

    pub(crate) fn is_unknown(&self) -> bool {
        matches!(*self.block.read(), ProviderBlock::Unknown)
    }

    /// What selects the host of a connection; `None` while the provider block is unknown.
    pub(crate) fn selectors(&self) -> Option<Selectors> {
        self.configuration().map(|configuration| configuration.selectors())
    }

    /// All that identifies a runner manager, as far as it is known. `instance`: the instance of its drain resource.
    pub(crate) fn identities(
        &self,
        manager: &Value<RunnerManagerArgs>,
        instance: Option<&str>,
    ) -> Identities {
        let known = manager.as_ref_option();
        known.map(|manager| manager.identities(self.selectors(), instance)).unwrap_or_default()
    }

    /// Warns, once in a plan, about a wrapper with a TCP address. `path`: of the runner manager.
    pub(crate) fn warn_of_tcp(&self, name: &str, manager: &Value<RunnerManagerArgs>, path: AttributePath) {
        let known = manager.as_ref_option();
        if call().walk != Walk::Apply
            && let Some(address) = known.and_then(RunnerManagerArgs::unprotected_address)
            && let Some(wrapper) = self.identities(manager, None).wrapper
            && self.run.reports_unprotected(wrapper)
        {
            call().warn(values::unprotected_wrapper(name, &address).at(path.attribute("wrapper_address")));
        }
    }

    /// Whether the connection needs `address` of a runner manager; `None` while the provider block is unknown.
    fn needs_address(&self) -> Option<bool> {
        match &*self.block.read() {
            ProviderBlock::Checked { needs_address } => *needs_address,
            ProviderBlock::Known(configuration) => Some(configuration.selectors().address),
            ProviderBlock::Missing | ProviderBlock::Unknown => None,
        }
    }

    /// The problem of a runner manager without the address that its connection needs. `path`: of the runner manager.
    pub(crate) fn missing_address(
        &self,
        manager: &Value<RunnerManagerArgs>,
        path: AttributePath,
    ) -> Option<Problem> {
        let is_missing = self.needs_address()? && manager.as_ref_option()?.has_no_address();
        is_missing.then(|| values::address(path.attribute("address"), AddressError::Required))
    }

    /// Refuses the runner managers of a map without the address that their connection needs. Accepts unknown.
    pub(crate) fn require_addresses(&self, managers: &RunnerManagers) -> Result<(), Problems> {
        let missing = managers.iter().flatten().filter_map(|(key, it)| self.missing_address(it, at(key)));
        missing.collect::<Problems>().or(())
    }

    /// Refuses two keys of one runner manager. While the provider block is unknown, only instance ids are compared.
    pub(crate) fn refuse_same_managers(&self, managers: &RunnerManagers, problems: &mut Problems) {
        let selectors = self.selectors();
        let identity = |manager: &RunnerManagerArgs| manager.identity(selectors?);
        same_manager::refuse(managers, &AttributePath::new("runner_managers"), identity, problems);
    }

    /// Records `event` of each runner manager of a map. Refuses what the run refuses, and two keys of one runner manager.
    pub(crate) fn refuse_managers(&self, managers: &RunnerManagers, event: &Event) -> Result<(), Problems> {
        let mut problems = Problems::default();
        self.refuse_same_managers(managers, &mut problems);
        for (key, manager) in managers.iter().flatten() {
            self.warn_of_tcp(key, manager, at(key));
            let row = Row::of_manager(event.clone(), key, self.identities(manager, None));
            let refusals = self.run.record(row, call().walk);
            problems.extend(refusals.iter().map(|refusal| plan::refused(refusal).at(at(key))));
        }
        problems.or(())
    }
}

/// The provider block: check and configure.
///
/// The check reads the files of the block. Configure reads only the files of environment variables, and accepts unknown and null values, because
/// Terraform plans with them. Neither opens a connection. A missing value is reported when a connection needs it.
#[derive(Debug)]
pub struct Grit {
    pub context: Arc<Context>,
}

#[async_trait]
impl Block for Grit {
    type Config = ProviderArgs;
    type Output = ();

    fn schema(&self) -> Schema {
        provider_block::schema()
    }

    async fn check(&self, config: ProviderArgs) -> Result<(), Problems> {
        *self.context.block.write() = ProviderBlock::Checked { needs_address: config.needs_address() };
        config.or_environment(|name| environment(name).filter(|_| name == "HOME")).check()
    }

    async fn run(&self, config: ProviderArgs) -> Result<(), Problems> {
        let Context { block, run, simulated } = &*self.context;
        let variable = |name: &str| match simulated {
            Some((_, variables)) => variables.get(name).cloned(),
            None => environment(name),
        };
        if run.start(variable).map_err(|invalid| plan::invalid_switch(&invalid))? {
            call().warn(plan::check_disabled());
        }
        *block.write() = if is_known(&config) {
            let configuration = Configuration::new(
                config,
                simulated.as_ref().map(|(connections, _)| connections.clone()),
                variable,
            );
            configuration.check_variables();
            if configuration.ignores_host_keys() {
                let path = AttributePath::new("ssh").attribute("insecure_ignore_host_key");
                call().warn(values::host_keys_not_verified().at(path));
            }
            if let Some(url) = configuration.gitlab_in_clear() {
                let path = AttributePath::new("gitlab").attribute("url");
                call().warn(values::gitlab_without_tls(&url).at(path));
            }
            ProviderBlock::Known(Arc::new(configuration))
        } else {
            ProviderBlock::Unknown
        };
        Ok(())
    }
}

fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// A random suffix of an id.
pub(crate) fn unique_suffix() -> String {
    format!("{:08x}", random() >> 32)
}
