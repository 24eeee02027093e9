//! The registry with all schemas converted, created at start.

use std::collections::BTreeMap;

use grit_proto::tfplugin6 as pb;

use super::{
    Registry,
    dynamic::{ErasedAction, ErasedDataSource, ErasedFunction, ErasedProvider, ErasedResource},
};
use crate::{
    explain::protocol,
    schema::{AttributePath, Diagnostics, DiagnosticsExt, Schema},
    wire::{self, Identity},
};

/// All types, by name.
pub(super) struct Catalog {
    pub(super) provider: Box<dyn ErasedProvider>,
    pub(super) provider_schema: pb::Schema,
    resources: BTreeMap<&'static str, ResourceEntry>,
    data_sources: BTreeMap<&'static str, DataSourceEntry>,
    functions: BTreeMap<&'static str, FunctionEntry>,
    actions: BTreeMap<&'static str, ActionEntry>,
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

pub(super) struct DataSourceEntry {
    pub(super) source: Box<dyn ErasedDataSource>,
    pub(super) message: pb::Schema,
}

pub(super) struct FunctionEntry {
    pub(super) function: Box<dyn ErasedFunction>,
    pub(super) message: pb::Function,
}

pub(super) struct ActionEntry {
    pub(super) action: Box<dyn ErasedAction>,
    pub(super) message: pb::Schema,
}

impl Catalog {
    pub(super) fn new(registry: Registry) -> Self {
        let mut diags = Diagnostics::default();
        for name in &registry.twice {
            bug(&mut diags, format!("The type `{name}` is registered twice"));
        }
        let provider_schema = registry.provider.schema(&mut diags);
        let provider_schema =
            or_bug(provider_schema, "the provider", &mut diags).map(|schema| wire::schema(&schema));
        let resources = registry
            .resources
            .into_iter()
            .filter_map(|(name, resource)| Some((name, ResourceEntry::new(name, resource, &mut diags)?)));
        let resources = resources.collect();
        let data_sources = registry
            .data_sources
            .into_iter()
            .filter_map(|(name, source)| Some((name, DataSourceEntry::new(name, source, &mut diags)?)));
        let data_sources = data_sources.collect();
        let functions = registry.functions.into_iter().map(|(name, function)| {
            let message = wire::function(&function.schema());
            (name, FunctionEntry { function, message })
        });
        let functions = functions.collect();
        let actions = registry
            .actions
            .into_iter()
            .filter_map(|(name, action)| Some((name, ActionEntry::new(name, action, &mut diags)?)));
        let actions = actions.collect();
        Self {
            provider: registry.provider,
            provider_schema: provider_schema.unwrap_or_default(),
            resources,
            data_sources,
            functions,
            actions,
            complaints: wire::diagnostics(diags),
        }
    }

    pub(super) fn resources(&self) -> impl Iterator<Item = (&'static str, &ResourceEntry)> {
        self.resources.iter().map(|(name, entry)| (*name, entry))
    }

    pub(super) fn data_sources(&self) -> impl Iterator<Item = (&'static str, &DataSourceEntry)> {
        self.data_sources.iter().map(|(name, entry)| (*name, entry))
    }

    pub(super) fn functions(&self) -> impl Iterator<Item = (&'static str, &FunctionEntry)> {
        self.functions.iter().map(|(name, entry)| (*name, entry))
    }

    pub(super) fn function(&self, name: &str, diags: &mut Diagnostics) -> Option<&FunctionEntry> {
        let found = self.functions.get(name);
        if found.is_none() {
            unknown_type(name, "function", diags);
        }
        found
    }

    pub(super) fn actions(&self) -> impl Iterator<Item = (&'static str, &ActionEntry)> {
        self.actions.iter().map(|(name, entry)| (*name, entry))
    }

    pub(super) fn resource(&self, name: &str, diags: &mut Diagnostics) -> Option<&ResourceEntry> {
        let found = self.resources.get(name);
        if found.is_none() {
            unknown_type(name, "resource", diags);
        }
        found
    }

    /// How objects of this type are identified; none of an unknown type.
    pub(super) fn identity(&self, name: &str) -> Option<&Identity> {
        self.resources.get(name)?.identity.as_ref()
    }

    pub(super) fn data_source(&self, name: &str, diags: &mut Diagnostics) -> Option<&DataSourceEntry> {
        let found = self.data_sources.get(name);
        if found.is_none() {
            unknown_type(name, "data source", diags);
        }
        found
    }

    pub(super) fn action(&self, name: &str, diags: &mut Diagnostics) -> Option<&ActionEntry> {
        let found = self.actions.get(name);
        if found.is_none() {
            unknown_type(name, "action", diags);
        }
        found
    }
}

impl ActionEntry {
    fn new(name: &str, action: Box<dyn ErasedAction>, diags: &mut Diagnostics) -> Option<Self> {
        let schema = or_bug(action.schema(diags), name, diags)?;
        Some(Self { action, message: wire::schema(&schema) })
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

impl DataSourceEntry {
    fn new(name: &str, source: Box<dyn ErasedDataSource>, diags: &mut Diagnostics) -> Option<Self> {
        let schema = or_bug(source.schema(diags), name, diags)?;
        Some(Self { source, message: wire::schema(&schema) })
    }
}

fn or_bug(schema: Option<Schema>, name: &str, diags: &mut Diagnostics) -> Option<Schema> {
    if schema.is_none() && !diags.has_errors() {
        bug(diags, format!("The schema of {name} is missing, and no error was reported"));
    }
    schema
}

fn bug(diags: &mut Diagnostics, problem: String) {
    protocol::bug(problem).error(AttributePath::root(), diags);
}

fn unknown_type(name: &str, kind: &str, diags: &mut Diagnostics) {
    protocol::unknown_type(kind, name).error(AttributePath::root(), diags);
}
