//! `local_file`: as the resource of `hashicorp/local`, with the attributes that the examples use. It writes real files.

use std::{fs, io::ErrorKind, path::Path};

use async_trait::async_trait;
use grit_plugin::{
    Problems, Resource,
    schema::{AttributePath, AttributeType, Schema, Value, computed, optional, required, schema},
};
use serde::{Deserialize, Serialize};

use super::failed;

/// The resource.
pub struct LocalFile;

/// Its attributes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    id: Value<String>,
    filename: Value<String>,
    content: Value<String>,
    file_permission: Value<String>,
}

impl State {
    fn text(value: &Value<String>) -> &str {
        value.as_ref_option().map_or("", String::as_str)
    }

    fn path(&self) -> &Path {
        Path::new(Self::text(&self.filename))
    }
}

#[async_trait]
impl Resource for LocalFile {
    type State = State;

    fn schema(&self) -> Schema {
        use AttributeType::String;
        schema(
            0,
            "A file.",
            [
                ("id", computed(String, "The path.")),
                ("filename", required(String, "The path. A change replaces the file.")),
                ("content", optional(String, "The text. A change replaces the file.")),
                ("file_permission", optional(String, "Ignored here.")),
            ],
        )
    }

    async fn read(&self, state: State) -> Result<Option<State>, Problems> {
        match fs::read_to_string(state.path()) {
            Ok(text) if text == State::text(&state.content) => Ok(Some(state)),
            _ => Ok(None),
        }
    }

    async fn plan_create(&self, proposed: State) -> Result<State, Problems> {
        Ok(State { id: Value::Unknown, ..proposed })
    }

    async fn plan_update(
        &self,
        prior: State,
        proposed: State,
    ) -> Result<(State, Vec<AttributePath>), Problems> {
        let changed = [
            ("filename", prior.filename != proposed.filename),
            ("content", prior.content != proposed.content),
        ];
        let replaced = changed.into_iter().filter(|(_, changed)| *changed);
        Ok((proposed, replaced.map(|(name, _)| AttributePath::new(name)).collect()))
    }

    async fn create(&self, planned: State) -> Result<State, Problems> {
        let path = planned.path();
        let made = path.parent().map_or(Ok(()), fs::create_dir_all);
        match made.and_then(|()| fs::write(path, State::text(&planned.content))) {
            Ok(()) => Ok(State { id: planned.filename.clone(), ..planned }),
            Err(error) => Err(failed("File was not written", format!("{}: {error}", path.display()))),
        }
    }

    async fn update(&self, _: State, planned: State) -> Result<State, Problems> {
        Ok(planned)
    }

    async fn destroy(&self, prior: State) -> Result<(), Problems> {
        match fs::remove_file(prior.path()) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(failed("File was not removed", format!("{}: {error}", prior.path().display())))
            }
            _ => Ok(()),
        }
    }
}
