//! The parts of a provider.

use std::{collections::BTreeMap, future::Future};

use futures::future::BoxFuture;
use tokio::time::Instant;

use super::dynamic::{ErasedAction, ErasedDataSource, ErasedFunction, ErasedProvider, ErasedResource};
use crate::schema::{Action, DataSource, Function, Provider, Resource};

/// A provider: its address, its configuration, its resources, data sources, functions and actions.
pub struct Registry {
    address: &'static str,
    pub(super) provider: Box<dyn ErasedProvider>,
    pub(super) resources: BTreeMap<&'static str, Box<dyn ErasedResource>>,
    pub(super) data_sources: BTreeMap<&'static str, Box<dyn ErasedDataSource>>,
    pub(super) functions: BTreeMap<&'static str, Box<dyn ErasedFunction>>,
    pub(super) actions: BTreeMap<&'static str, Box<dyn ErasedAction>>,
    pub(super) twice: Vec<&'static str>,
    pub(crate) process: Process,
}

/// What the program of a provider needs besides its types.
#[derive(Default)]
pub(crate) struct Process {
    pub(crate) version: String,
    pub(crate) quiet: &'static [&'static str],
    pub(crate) at_start: Option<fn()>,
    pub(crate) at_exit: Option<Box<dyn FnOnce(Instant) -> BoxFuture<'static, ()> + Send>>,
}

impl Registry {
    /// A provider without resources. `address` is the full one: host, namespace and name.
    pub fn new(address: &'static str, provider: impl Provider) -> Self {
        Self {
            address,
            provider: Box::new(provider),
            resources: BTreeMap::new(),
            data_sources: BTreeMap::new(),
            functions: BTreeMap::new(),
            actions: BTreeMap::new(),
            twice: Vec::new(),
            process: Process::default(),
        }
    }

    /// The text that the program prints with `--version`.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.process.version = version.into();
        self
    }

    /// Libraries whose log is limited to warnings, because they log too much at debug and trace.
    #[must_use]
    pub fn quiet(mut self, libraries: &'static [&'static str]) -> Self {
        self.process.quiet = libraries;
        self
    }

    /// Called once before the provider serves, after the start of the log.
    #[must_use]
    pub fn at_start(mut self, prepare: fn()) -> Self {
        self.process.at_start = Some(prepare);
        self
    }

    /// Called once before the process exits, after the calls. The process waits for the future, which must end at the given instant.
    #[must_use]
    pub fn at_exit<F>(mut self, clean_up: impl FnOnce(Instant) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.process.at_exit = Some(Box::new(|deadline| Box::pin(clean_up(deadline))));
        self
    }

    /// Adds a managed resource under its full type name, such as `grit_runner_drain`.
    #[must_use]
    pub fn resource(mut self, type_name: &'static str, resource: impl Resource + 'static) -> Self {
        let replaced = self.resources.insert(type_name, Box::new(resource));
        self.twice.extend(replaced.map(|_| type_name));
        self
    }

    /// Adds a data source under its full type name.
    #[must_use]
    pub fn data_source(mut self, type_name: &'static str, data_source: impl DataSource + 'static) -> Self {
        let replaced = self.data_sources.insert(type_name, Box::new(data_source));
        self.twice.extend(replaced.map(|_| type_name));
        self
    }

    /// Adds a function: `provider::grit::NAME`.
    #[must_use]
    pub fn function(mut self, name: &'static str, function: impl Function) -> Self {
        let replaced = self.functions.insert(name, Box::new(function));
        self.twice.extend(replaced.map(|_| name));
        self
    }

    /// Adds an action under its full type name.
    #[must_use]
    pub fn action(mut self, type_name: &'static str, action: impl Action) -> Self {
        let replaced = self.actions.insert(type_name, Box::new(action));
        self.twice.extend(replaced.map(|_| type_name));
        self
    }

    /// The full address: host, namespace and name.
    pub fn address(&self) -> &'static str {
        self.address
    }

    /// The provider's own name, the last part of its address: `grit`.
    pub fn name(&self) -> &'static str {
        self.address.rsplit('/').next().unwrap_or(self.address)
    }
}
