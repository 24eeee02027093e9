//! The attributes of the data source.

use grit_plugin::{
    Problems,
    schema::{
        Attribute, AttributeConstraint, AttributePath, AttributeType, Attributes, Schema, Value, computed_as,
        object_schema, text,
    },
};

use crate::{
    config::{
        manager::{RunnerManagerArgs, RunnerManagers},
        object::object,
        text::{check_text, set},
    },
    deployment::{Directory, Source},
    explain::values,
};

object! {
    /// Configuration and result. It has no `Debug`: it may contain secrets.
    pub struct DeploymentState {
        pub(super) state_path: Value<String> = text =>
            "Path of a state file, or of a file with the output of `terraform output -json`. At most 64 MiB.", check_not_blank;
        pub(super) directory: Value<String> = text =>
            "Directory of the other configuration. The provider runs `terraform output -json` in this directory. This command does not \
             lock the state and starts no provider.", check_not_blank;
        pub(super) terraform_path: Value<String> = text =>
            "Program to run in `directory`. Default: the first of `terraform` and `tofu` on PATH.";
        pub(super) runner_managers: RunnerManagers = computed_as(AttributeType::AttributeMap(computed_managers())) =>
            "The runner managers, by key, with the type that the resources accept. Only `ssh_key_pem` is sensitive, so `for_each` \
             accepts the map.";
    }
    check: DeploymentState::check_sources;
}

impl DeploymentState {
    /// Exactly one source, and no attribute that belongs to another one.
    fn check_sources(&self, path: &AttributePath, problems: &mut Problems) {
        let sources = [("state_path", !self.state_path.is_null()), ("directory", !self.directory.is_null())];
        let names = sources.map(|(name, _)| name);
        let chosen: Vec<_> =
            sources.into_iter().filter_map(|(name, is_set)| is_set.then_some(name)).collect();
        if chosen.len() != 1 {
            let path = chosen.last().map_or_else(|| path.clone(), |name| path.clone().attribute(*name));
            problems.add(values::not_exactly_one(&chosen, &names).at(path));
        }
        if self.directory.is_null() && set(&self.terraform_path).is_some() {
            problems.add(values::only_with(path.clone().attribute("terraform_path"), "directory"));
        }
    }

    /// The source, if it is known.
    pub(super) fn source(&self) -> Option<Source> {
        Some(match (&self.state_path, &self.directory) {
            (Value::Value(path), _) => Source::File(path.into()),
            (_, Value::Value(path)) => {
                Source::Directory(Directory { path: path.into(), program: set(&self.terraform_path) })
            }
            _ => return None,
        })
    }
}

/// The attributes of a runner manager, as values that the provider sets.
fn computed_managers() -> Attributes {
    let attributes = RunnerManagerArgs::attributes().into_iter();
    let computed_only = |attribute| Attribute { constraint: AttributeConstraint::Computed, ..attribute };
    attributes.map(|(name, attribute)| (name, computed_only(attribute))).collect()
}

/// Rejects white space. Accepts null and unknown.
fn check_not_blank(value: &Value<String>, path: &AttributePath, problems: &mut Problems) {
    if !value.is_null() {
        check_text(value, path, problems);
    }
}

pub(super) fn schema() -> Schema {
    object_schema(
        0,
        "Reads the runner managers of another deployment version from its output `grit_runner_managers`, and checks them. Set exactly one \
         of `state_path` and `directory`.",
        DeploymentState::attributes(),
    )
}
