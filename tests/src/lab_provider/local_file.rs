//! `local_file`: as the resource of `hashicorp/local`, with the attributes that the examples use. It writes real files.

use std::{fs, io::ErrorKind, path::Path};

use async_trait::async_trait;
use grit_plugin::{
    call,
    schema::{
        AttributePath, AttributeType, Diagnostics, DiagnosticsExt, Resource, Schema, Value, computed,
        optional, required, schema,
    },
};
use serde::{Deserialize, Serialize};

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
    type State<'a> = State;

    fn schema(&self, _: &mut Diagnostics) -> Option<Schema> {
        use AttributeType::String;
        Some(schema(
            0,
            "A file.",
            [
                ("id", computed(String, "The path.")),
                ("filename", required(String, "The path. A change replaces the file.")),
                ("content", optional(String, "The text. A change replaces the file.")),
                ("file_permission", optional(String, "Ignored here.")),
            ],
        ))
    }

    async fn read<'a>(&self, _: &mut Diagnostics, state: State) -> Option<State> {
        match fs::read_to_string(state.path()) {
            Ok(text) if text == State::text(&state.content) => Some(state),
            _ => {
                call().gone();
                None
            }
        }
    }

    async fn plan_create<'a>(&self, _: &mut Diagnostics, proposed: State) -> Option<State> {
        Some(State { id: Value::Unknown, ..proposed })
    }

    async fn plan_update<'a>(
        &self,
        _: &mut Diagnostics,
        prior: State,
        proposed: State,
    ) -> Option<(State, Vec<AttributePath>)> {
        let changed = [
            ("filename", prior.filename != proposed.filename),
            ("content", prior.content != proposed.content),
        ];
        let replaced = changed.into_iter().filter(|(_, changed)| *changed);
        Some((proposed, replaced.map(|(name, _)| AttributePath::new(name)).collect()))
    }

    async fn create<'a>(&self, diags: &mut Diagnostics, planned: State) -> Option<State> {
        let path = planned.path();
        let made = path.parent().map_or(Ok(()), fs::create_dir_all);
        match made.and_then(|()| fs::write(path, State::text(&planned.content))) {
            Ok(()) => Some(State { id: planned.filename.clone(), ..planned }),
            Err(error) => {
                diags.fail("File was not written", format!("{}: {error}", path.display()));
                None
            }
        }
    }

    async fn update<'a>(&self, _: &mut Diagnostics, _: State, planned: State) -> Option<State> {
        Some(planned)
    }

    async fn destroy<'a>(&self, diags: &mut Diagnostics, prior: State) -> Option<()> {
        match fs::remove_file(prior.path()) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                diags.fail("File was not removed", format!("{}: {error}", prior.path().display()));
                None
            }
            _ => Some(()),
        }
    }

    async fn import<'a>(&self, diags: &mut Diagnostics, _: String) -> Option<State> {
        diags.fail("Import is not supported", "No test imports a file.");
        None
    }
}
