//! The registry with all schemas converted, created at start.

use std::collections::BTreeMap;

use grit_proto::tfplugin6 as pb;

use super::{
    Registry,
    dynamic::{ErasedAction, ErasedDataSource, ErasedFunction, ErasedProvider, ErasedResource},
};
use crate::{
    problem::{Problem, texts},
    schema::{AttributePath, Diagnostics, DiagnosticsExt, Schema},
    wire::{self, Identity},
};

pub(super) struct Catalog {
    pub(super) provider: Box<dyn ErasedProvider>,
    pub(super) provider_schema: pb::Schema,
    pub(super) resources: Types<ResourceEntry>,
    pub(super) data_sources: Types<Entry<dyn ErasedDataSource>>,
    pub(super) functions: Types<Entry<dyn ErasedFunction, pb::Function>>,
    pub(super) actions: Types<Entry<dyn ErasedAction>>,
    /// Errors in the schemas, returned with them.
    pub(super) complaints: Vec<pb::Diagnostic>,
}

pub(super) struct ResourceEntry {
    pub(super) resource: Box<dyn ErasedResource>,
    pub(super) schema: Schema,
    pub(super) message: pb::Schema,
    /// Finds the identity of an object, if the type has one.
    pub(super) identity: Option<Identity>,
}

/// A data source, function or action, and its schema.
pub(super) struct Entry<T: ?Sized, M = pb::Schema> {
    pub(super) item: Box<T>,
    pub(super) message: M,
}

/// All types of one kind, by name.
pub(super) struct Types<E> {
    kind: &'static str,
    entries: BTreeMap<&'static str, E>,
}

impl<E> Types<E> {
    fn new(kind: &'static str, entries: impl Iterator<Item = (&'static str, E)>) -> Self {
        Self { kind, entries: entries.collect() }
    }

    /// The type with this name, or an error.
    pub(super) fn find(&self, name: &str, diags: &mut Diagnostics) -> Option<&E> {
        let found = self.entries.get(name);
        if found.is_none() {
            texts::unknown_type(self.kind, name).error(AttributePath::root(), diags);
        }
        found
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (String, &E)> {
        self.entries.iter().map(|(name, entry)| ((*name).to_owned(), entry))
    }

    /// Makes a message for each type.
    pub(super) fn map<T, C: FromIterator<T>>(&self, make: impl Fn(String, &E) -> T) -> C {
        self.iter().map(|(name, entry)| make(name, entry)).collect()
    }
}

impl Catalog {
    pub(super) fn new(registry: Registry) -> Self {
        let mut diags = Diagnostics::default();
        for name in &registry.twice {
            bug(&mut diags, format!("The type `{name}` is registered twice"));
        }
        let provider_schema = or_bug(registry.provider.schema(&mut diags), "the provider", &mut diags);
        let resources = registry
            .resources
            .into_iter()
            .filter_map(|(name, resource)| Some((name, ResourceEntry::new(name, resource, &mut diags)?)));
        let resources = Types::new("resource", resources);
        let data_sources = registry.data_sources.into_iter().filter_map(|(name, item)| {
            let schema = or_bug(item.schema(&mut diags), name, &mut diags)?;
            Some((name, Entry { item, message: wire::schema(&schema) }))
        });
        let data_sources = Types::new("data source", data_sources);
        let functions = registry.functions.into_iter().map(|(name, item)| {
            let message = wire::function(&item.schema());
            (name, Entry { item, message })
        });
        let functions = Types::new("function", functions);
        let actions = registry.actions.into_iter().filter_map(|(name, item)| {
            let schema = or_bug(item.schema(&mut diags), name, &mut diags)?;
            Some((name, Entry { item, message: wire::schema(&schema) }))
        });
        let actions = Types::new("action", actions);
        Self {
            provider: registry.provider,
            provider_schema: provider_schema.as_ref().map(wire::schema).unwrap_or_default(),
            resources,
            data_sources,
            functions,
            actions,
            complaints: wire::diagnostics(diags),
        }
    }

    /// How objects of this type are identified; none of an unknown type.
    pub(super) fn identity(&self, name: &str) -> Option<&Identity> {
        self.resources.entries.get(name)?.identity.as_ref()
    }
}

impl ResourceEntry {
    fn new(name: &str, resource: Box<dyn ErasedResource>, diags: &mut Diagnostics) -> Option<Self> {
        let schema = or_bug(resource.schema(diags), name, diags)?;
        let message = wire::schema(&schema);
        match resource.identity().map(|attribute| Identity::new(&schema, attribute)).transpose() {
            Ok(identity) => Some(Self { resource, schema, message, identity }),
            Err(attribute) => {
                bug(
                    diags,
                    format!("The identity of `{name}` is `{attribute}`, which is not a string in the schema"),
                );
                None
            }
        }
    }
}

fn or_bug(schema: Option<Schema>, name: &str, diags: &mut Diagnostics) -> Option<Schema> {
    if schema.is_none() && !diags.has_errors() {
        bug(diags, format!("The schema of {name} is missing, and no error was reported"));
    }
    schema
}

fn bug(diags: &mut Diagnostics, problem: String) {
    Problem::bug(problem).error(AttributePath::root(), diags);
}
