//! The types of a provider.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use futures::future::BoxFuture;
use tokio::time::Instant;

use super::erased::{ErasedBlock, ErasedResource};
use crate::{
    contract::{Block, Resource},
    problem::{Problem, texts},
    schema::Schema,
};

/// A provider: its address, its configuration, its resources, data sources and actions.
pub struct Registry {
    address: &'static str,
    pub(super) provider: Box<dyn ErasedBlock>,
    pub(super) resources: Types<ResourceEntry>,
    pub(super) data_sources: Types<dyn ErasedBlock>,
    pub(super) actions: Types<dyn ErasedBlock>,
    pub(crate) process: Process,
}

/// What the program of a provider needs besides its types.
#[derive(Default)]
pub(crate) struct Process {
    pub(crate) version: String,
    pub(crate) quiet: &'static [&'static str],
    pub(crate) at_start: Option<fn()>,
    pub(crate) at_exit: Option<Box<dyn FnOnce(Instant) -> BoxFuture<'static, ()> + Send + Sync>>,
}

pub(super) struct ResourceEntry {
    pub(super) item: Box<dyn ErasedResource>,
    schema: OnceLock<Schema>,
}

/// All types of one kind, by name. Each is shared with its running calls.
pub(super) struct Types<E: ?Sized> {
    kind: &'static str,
    entries: BTreeMap<&'static str, Arc<E>>,
}

impl<E: ?Sized> Types<E> {
    fn new(kind: &'static str) -> Self {
        Self { kind, entries: BTreeMap::new() }
    }

    /// The type with this name.
    pub(super) fn find(&self, name: &str) -> Result<Arc<E>, Problem> {
        self.entries.get(name).cloned().ok_or_else(|| texts::unknown_type(self.kind, name))
    }

    /// Makes a message for each type.
    pub(super) fn map<T, C: FromIterator<T>>(&self, make: impl Fn(String, &E) -> T) -> C {
        self.entries.iter().map(|(name, entry)| make((*name).to_owned(), entry)).collect()
    }

    fn add(&mut self, name: &'static str, entry: Arc<E>) {
        let other = self.entries.insert(name, entry);
        debug_assert!(other.is_none(), "the type `{name}` is registered twice");
    }
}

impl ResourceEntry {
    /// Made at its first use: Terraform caches the schemas, so most processes need only some of them.
    pub(super) fn schema(&self) -> &Schema {
        self.schema.get_or_init(|| self.item.schema())
    }
}

impl Registry {
    /// A provider without types. `address` is the full one: host, namespace and name.
    pub fn new(address: &'static str, provider: impl Block) -> Self {
        Self {
            address,
            provider: Box::new(provider),
            resources: Types::new("resource"),
            data_sources: Types::new("data source"),
            actions: Types::new("action"),
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
    pub fn at_exit<F>(mut self, clean_up: impl FnOnce(Instant) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.process.at_exit = Some(Box::new(|deadline| Box::pin(clean_up(deadline))));
        self
    }

    /// Adds a managed resource under its full type name, such as `grit_runner_drain`.
    #[must_use]
    pub fn resource(mut self, type_name: &'static str, resource: impl Resource) -> Self {
        let item: Box<dyn ErasedResource> = Box::new(resource);
        let entry = ResourceEntry { item, schema: OnceLock::new() };
        self.resources.add(type_name, Arc::new(entry));
        self
    }

    /// Adds a data source under its full type name.
    #[must_use]
    pub fn data_source(mut self, type_name: &'static str, data_source: impl Block) -> Self {
        self.data_sources.add(type_name, Arc::new(data_source));
        self
    }

    /// Adds an action under its full type name.
    #[must_use]
    pub fn action(mut self, type_name: &'static str, action: impl Block) -> Self {
        self.actions.add(type_name, Arc::new(action));
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
