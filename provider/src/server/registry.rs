//! The parts of a provider.

use std::collections::BTreeMap;

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
        }
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
