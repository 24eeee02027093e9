//! The attributes of the data source.

use std::time::Duration;

use grit_plugin::{
    Problems, attribute_map,
    schema::{
        Attribute, AttributeConstraint, AttributePath, AttributeType, Schema, Value, boolean, computed_as,
        object, object_schema, secret, text,
    },
};
use serde::{Deserialize, Serialize};

use crate::{
    config::{
        manager::{RunnerManagerArgs, RunnerManagers},
        text::set,
        timeouts::ReadTimeout,
    },
    deployment::{Directory, Source},
    duration::human,
    explain::values,
};

const TIMEOUT: Duration = Duration::from_secs(300);
const ALLOW_MISSING: bool = false;

/// Configuration and result. It has no `Debug`: it may contain secrets.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DeploymentState {
    pub(super) state_path: Value<String>,
    pub(super) state_json: Value<String>,
    pub(super) directory: Value<String>,
    pub(super) terraform_path: Value<String>,
    pub(super) allow_missing: Value<bool>,
    pub(super) timeouts: Value<ReadTimeout>,
    pub(super) runner_managers: RunnerManagers,
}

impl DeploymentState {
    /// Refuses invalid values. Unknown values are accepted. Returns the source, if it is known.
    pub(super) fn check(&self) -> Result<Option<Source>, Problems> {
        let mut found = Problems::default();
        let problems = &mut found;
        let root = AttributePath::new;
        self.check_sources(problems);
        for (name, text) in [
            ("state_path", &self.state_path),
            ("state_json", &self.state_json),
            ("directory", &self.directory),
        ] {
            if let Value::Value(text) = text
                && text.trim().is_empty()
            {
                problems.add(values::empty(root(name), text));
            }
        }
        if self.directory.is_null() && set(&self.terraform_path).is_some() {
            problems.add(values::only_with(root("terraform_path"), "directory"));
        }
        ReadTimeout::check(&self.timeouts, problems);
        found.or(self.source())
    }

    fn check_sources(&self, problems: &mut Problems) {
        let sources = [
            ("state_path", !self.state_path.is_null()),
            ("state_json", !self.state_json.is_null()),
            ("directory", !self.directory.is_null()),
        ];
        let names = sources.map(|(name, _)| name);
        let set: Vec<_> = sources.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name).collect();
        if set.len() != 1 {
            let path = set.last().map_or_else(AttributePath::root, |name| AttributePath::new(*name));
            problems.add(values::not_exactly_one(&set, &names).at(path));
        }
    }

    fn source(&self) -> Option<Source> {
        Some(match (&self.state_path, &self.state_json, &self.directory) {
            (Value::Value(path), _, _) => Source::File(path.into()),
            (_, Value::Value(text), _) => Source::Text(text.clone()),
            (_, _, Value::Value(path)) => {
                Source::Directory(Directory { path: path.into(), program: set(&self.terraform_path) })
            }
            _ => return None,
        })
    }

    pub(super) fn allows_missing(&self) -> bool {
        self.allow_missing.unwrap_or(ALLOW_MISSING)
    }

    pub(super) fn timeout(&self) -> Duration {
        ReadTimeout::read(&self.timeouts, TIMEOUT)
    }
}

pub(super) fn schema() -> Schema {
    let managers = RunnerManagerArgs::attributes().into_iter();
    let computed_only = |attribute| Attribute { constraint: AttributeConstraint::Computed, ..attribute };
    let managers = managers.map(|(name, attribute)| (name, computed_only(attribute))).collect();
    object_schema(
        0,
        "Reads the runner managers of another deployment version from its output `grit_runner_managers`, and checks them. Set exactly one \
         of `state_path`, `state_json` and `directory`.",
        attribute_map! {
            state_path: text => "Path of a state file, or of a file with the output of `terraform show -json` or `terraform output -json`. \
                 At most 64 MiB.",
            state_json: secret =>
                "Text of a state file, or the output of `terraform show -json` or `terraform output -json`. It is stored in the state of \
                 this configuration.",
            directory: text =>
                "Directory of the other configuration. The provider runs `terraform output -json` in it, which locks no state and starts no \
                 provider.",
            terraform_path: text => "Program to run in `directory`. Default: the first of `terraform` and `tofu` on PATH.",
            allow_missing: boolean => &format!(
                "Return an empty map, with a warning, if there is no output `grit_runner_managers`, for example because the deployment was \
                 destroyed. Default `{ALLOW_MISSING}`. A wrong directory or workspace has no such output either, and its runners would \
                 keep running: set it only while the warning is expected. A directory or file that does not exist is always an error."
            ),
            timeouts: object(ReadTimeout::attributes(&human(TIMEOUT))) => "Timeouts.",
            runner_managers: computed_as(AttributeType::AttributeMap(managers)) =>
                "The runner managers, by key, with the type that the resources accept. Only `ssh_key_pem` is sensitive, so that the map can \
                 be used in `for_each`.",
        },
    )
}
