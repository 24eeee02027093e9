//! A Terraform plugin framework: all that a provider needs besides its own work. It knows no service and no cloud.
//!
//! # A provider
//!
//! A provider is a [`Registry`] of types. The provider block, each data source and each action implement [`Block`]; each managed resource
//! implements [`Resource`]. [`run`] is the whole `main` of the program.
//!
//! ```no_run
//! use async_trait::async_trait;
//! use grit_plugin::{
//!     Block, Problem, Problems, Registry, Resource, call,
//!     schema::{AttributePath, AttributeType, Schema, Value, computed, required, schema},
//! };
//! use serde::{Deserialize, Serialize};
//!
//! /// The provider block, without attributes.
//! struct Notes;
//!
//! #[derive(Deserialize)]
//! struct NoAttributes {}
//!
//! #[async_trait]
//! impl Block for Notes {
//!     type Config = NoAttributes;
//!     type Output = ();
//!
//!     fn schema(&self) -> Schema {
//!         schema(0, "Keeps notes in files.", [])
//!     }
//!
//!     async fn run(&self, _: NoAttributes) -> Result<(), Problems> {
//!         Ok(())
//!     }
//! }
//!
//! struct Note;
//!
//! #[derive(Serialize, Deserialize)]
//! struct NoteState {
//!     path: Value<String>,
//!     size: Value<i64>,
//! }
//!
//! #[async_trait]
//! impl Resource for Note {
//!     type State = NoteState;
//!
//!     fn schema(&self) -> Schema {
//!         let path = required(AttributeType::String, "The file.");
//!         schema(0, "A file.", [("path", path), ("size", computed(AttributeType::Number, "Its size."))])
//!     }
//!
//!     async fn validate(&self, config: NoteState) -> Result<(), Problems> {
//!         let mut problems = Problems::default();
//!         if config.path == Value::Value(String::new()) {
//!             let empty = Problem::new("invalid_config", "Path is empty", "`path` must name a file.", "");
//!             problems.add(empty.at(AttributePath::new("path")));
//!         }
//!         problems.or(())
//!     }
//!
//!     async fn plan_create(&self, proposed: NoteState) -> Result<NoteState, Problems> {
//!         Ok(NoteState { size: Value::Unknown, ..proposed })
//!     }
//!
//!     async fn plan_update(
//!         &self,
//!         prior: NoteState,
//!         proposed: NoteState,
//!     ) -> Result<(NoteState, Vec<AttributePath>), Problems> {
//!         let replaced = (prior.path != proposed.path).then(|| AttributePath::new("path"));
//!         Ok((NoteState { size: prior.size, ..proposed }, replaced.into_iter().collect()))
//!     }
//!
//!     async fn create(&self, planned: NoteState) -> Result<NoteState, Problems> {
//!         if call().stop.is_cancelled() {
//!             return Err(Problem::new("interrupted", "Interrupted", "Nothing was created.", "").into());
//!         }
//!         Ok(NoteState { size: Value::Value(0), ..planned })
//!     }
//!
//!     async fn update(&self, _: NoteState, planned: NoteState) -> Result<NoteState, Problems> {
//!         Ok(planned)
//!     }
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     grit_plugin::run(Registry::new("registry.terraform.io/example/notes", Notes).resource("notes_note", Note))
//! }
//! ```
//!
//! # Calls
//!
//! Each call of Terraform runs in a task of its own, which continues when Terraform disconnects. [`call()`] is its context:
//!
//! - `stop`: a token that is cancelled by Ctrl-C, by SIGTERM and at the end of the process. Each wait selects on it.
//! - [`Call::warn`] adds a warning; `progress` sends the lines of an action.
//! - [`Call::checkpoint`] stores a state that Terraform keeps if the call then fails or panics.
//! - `walk`: whether Terraform plans or applies, as far as its calls prove it. `private` and [`Call::keep`]: data between the calls for an object.
//!
//! # Failures
//!
//! A call that fails returns [`Problems`], each with its attribute, a title, what happened, the next step, and a code. A check that finds several
//! takes `&mut Problems`. A panic, a missing problem, and a value that cannot be decoded are reported as bugs of the provider.
//!
//! # Process
//!
//! Terraform starts the program with a cookie and its certificate in the environment. The program prints the address of a Unix socket, and serves
//! only clients of its user that have the key of the certificate. With `--debug` a developer attaches Terraform. The process ends after Terraform.
//!
//! # Modules
//!
//! `process` starts, serves and ends; `server` has one file for each of Terraform's calls; `wire` encodes; [`schema`] has attributes and values.

mod contract;
mod problem;
mod process;
pub mod schema;
mod server;
mod wire;

pub use contract::{Block, Resource};
pub use problem::{Problem, Problems};
pub use process::run;
pub use server::{
    Registry, Service,
    call::{Call, Operation, Private, Progress, Walk, call, warnings_of},
};
