//! The types of a provider, with their schemas as messages.

use std::{collections::BTreeMap, sync::Arc};

use futures::future::BoxFuture;
use grit_proto::tfplugin6 as pb;
use tokio::time::Instant;

use super::erased::{ErasedBlock, ErasedFunction, ErasedResource};
use crate::{
    contract::{Block, Function, Resource},
    problem::{Problem, Problems, texts},
    schema::Schema,
    wire::{self, Identity},
};

/// A provider: its address, its configuration, its resources, data sources, functions and actions.
pub struct Registry {
    address: &'static str,
    pub(super) provider: BlockEntry,
    pub(super) resources: Types<ResourceEntry>,
    pub(super) data_sources: Types<BlockEntry>,
    pub(super) functions: Types<FunctionEntry>,
    pub(super) actions: Types<BlockEntry>,
    /// Mistakes in the types, returned with their schemas.
    pub(super) bugs: Problems,
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

/// The provider block, a data source or an action.
pub(super) struct BlockEntry {
    pub(super) item: Box<dyn ErasedBlock>,
    pub(super) message: pb::Schema,
}

pub(super) struct ResourceEntry {
    pub(super) item: Box<dyn ErasedResource>,
    pub(super) schema: Schema,
    pub(super) message: pb::Schema,
    /// Finds the identity of an object, if the type has one.
    pub(super) identity: Option<Identity>,
}

pub(super) struct FunctionEntry {
    pub(super) item: Box<dyn ErasedFunction>,
    pub(super) message: pb::Function,
}

/// All types of one kind, by name. Each is shared with its running calls.
pub(super) struct Types<E> {
    kind: &'static str,
    entries: BTreeMap<&'static str, Arc<E>>,
}

impl<E> Types<E> {
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

    fn add(&mut self, name: &'static str, entry: E, bugs: &mut Problems) {
        if self.entries.insert(name, Arc::new(entry)).is_some() {
            bugs.add(Problem::bug(format!("The type `{name}` is registered twice")));
        }
    }
}

impl BlockEntry {
    fn new(block: impl Block) -> Self {
        let item: Box<dyn ErasedBlock> = Box::new(block);
        Self { message: wire::schema(&item.schema()), item }
    }
}

impl Registry {
    /// A provider without types. `address` is the full one: host, namespace and name.
    pub fn new(address: &'static str, provider: impl Block) -> Self {
        Self {
            address,
            provider: BlockEntry::new(provider),
            resources: Types::new("resource"),
            data_sources: Types::new("data source"),
            functions: Types::new("function"),
            actions: Types::new("action"),
            bugs: Problems::default(),
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
        let schema = item.schema();
        let identity = item.identity().map(|attribute| Identity::new(&schema, attribute)).transpose();
        let identity = identity.unwrap_or_else(|attribute| {
            self.bugs.add(Problem::bug(format!(
                "The identity of `{type_name}` is `{attribute}`, which is not a string in the schema"
            )));
            None
        });
        let entry = ResourceEntry { message: wire::schema(&schema), item, schema, identity };
        self.resources.add(type_name, entry, &mut self.bugs);
        self
    }

    /// Adds a data source under its full type name.
    #[must_use]
    pub fn data_source(mut self, type_name: &'static str, data_source: impl Block) -> Self {
        self.data_sources.add(type_name, BlockEntry::new(data_source), &mut self.bugs);
        self
    }

    /// Adds a function: `provider::grit::NAME`.
    #[must_use]
    pub fn function(mut self, name: &'static str, function: impl Function) -> Self {
        let item: Box<dyn ErasedFunction> = Box::new(function);
        let entry = FunctionEntry { message: wire::function(&item.schema()), item };
        self.functions.add(name, entry, &mut self.bugs);
        self
    }

    /// Adds an action under its full type name.
    #[must_use]
    pub fn action(mut self, type_name: &'static str, action: impl Block) -> Self {
        self.actions.add(type_name, BlockEntry::new(action), &mut self.bugs);
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
