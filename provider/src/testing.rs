//! The interface for tests and benchmarks of the workspace.

use std::sync::Arc;

use futures::FutureExt as _;
use grit_plugin::{Problems, warnings_of};
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use crate::{
    client::WrapperClient,
    config::{
        manager::RunnerManagerArgs,
        object::Object as _,
        provider_block::{Configuration, ProviderArgs},
    },
};

pub mod actions {
    pub use crate::actions::Drain;
}

pub mod client {
    pub use crate::client::{
        ClientError, DrainRequest, RunnerStatus, Snapshot, StatusReport, Wrapper, WrapperClient,
    };
}

pub mod explain {
    pub use crate::explain::explain;
}

pub mod fleet {
    pub use crate::fleet::{Retry, drain};
}

pub mod data_sources {
    pub use crate::data_sources::{Deployment, RunnerStatus};
}

/// The provider over simulated wrappers.
pub mod simulation {
    use std::{collections::BTreeMap, sync::Arc};

    use grit_plugin::Registry;

    pub use crate::{
        client::{Clients, Connect},
        gitlab::{Answer, Connections, GitlabError, SimulatedGitlab},
        random::set_source,
    };

    /// The provider, whose runner managers and GitLab have these connections instead of those of its provider block, with these environment
    /// variables.
    pub fn registry(clients: Clients, gitlab: Connections, variables: BTreeMap<String, String>) -> Registry {
        crate::registry_of(Arc::new(crate::context::Context::simulated(clients, gitlab, variables)))
    }
}

pub mod resources {
    pub use crate::{
        context::{Context, Grit},
        resources::{RunnerDrain, RunnerHealth, RunnerShutdown},
    };
}

pub mod transport {
    pub use grit_ssh::{
        Attribute, BoxStream, Cause, ChannelRefusal, CommandError, Confirmation, ConnectionMethod,
        HostKeyRefusal, HostKeyVerdict, HostPort, InvalidOption, KeyError, Peer, Phase, Reachability, Route,
        Secret, Target, TransportError, Tunnel, TunnelMonitor, WrapperAddress,
    };
}

#[derive(Clone, Debug)]
pub struct Connections(Arc<Configuration>);

impl Connections {
    /// The connections of a provider block with all attributes. `variable` reads environment variables.
    ///
    /// # Panics
    ///
    /// If the block does not match the schema.
    pub fn new(provider_block: &Json, variable: impl Fn(&str) -> Option<String>) -> Self {
        let block: ProviderArgs = decode(provider_block);
        Self(Arc::new(Configuration::new(block, None, variable)))
    }

    /// The errors and the warnings of `terraform validate` for a provider block.
    ///
    /// # Panics
    ///
    /// If the block does not match the schema.
    pub fn check(provider_block: &Json, variable: impl Fn(&str) -> Option<String>) -> (Problems, Problems) {
        let block: ProviderArgs = decode(provider_block);
        let check = warnings_of(async { block.or_environment(variable).check() });
        let (checked, warnings) = check.now_or_never().unwrap_or_else(|| (Ok(()), Problems::default()));
        (checked.err().unwrap_or_default(), warnings)
    }

    /// A client for an entry of `runner_managers` with all attributes.
    ///
    /// # Panics
    ///
    /// If the entry does not match the schema, or an address in it is invalid.
    #[expect(clippy::expect_used, reason = "for tests")]
    pub fn client(&self, key: &str, runner_manager: &Json) -> WrapperClient {
        let entry: RunnerManagerArgs = decode(runner_manager);
        entry.resolve(key, &self.0).expect("addresses").client().into_wrapper_client()
    }
}

/// Decodes a value in Terraform's encoding.
#[expect(clippy::expect_used, reason = "for tests")]
fn decode<T: DeserializeOwned>(value: &Json) -> T {
    let encoded = rmp_serde::to_vec_named(value).expect("JSON can be encoded");
    rmp_serde::from_slice(&encoded).expect("the shape of the schema")
}
