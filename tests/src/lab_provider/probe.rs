//! `lab_probe`: a managed resource whose `mode` selects a fault.

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use grit_plugin::{
    Problem, Problems, Resource, call,
    schema::{
        AttributePath, AttributeType, Number, Schema, Value, ValueNumber, attributes, computed, optional,
        required, schema, sensitive,
    },
};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::{failed, journal};

/// The schema version.
pub const VERSION: i64 = 2;

/// The resource.
pub struct Probe;

/// Its attributes; [`Probe::schema`](Resource::schema) describes them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct State {
    id: Value<String>,
    name: Value<String>,
    mode: Value<String>,
    create_ms: ValueNumber,
    destroy_ms: ValueNumber,
    blob_kib: ValueNumber,
    blob: Value<String>,
    secret: Value<String>,
    weight: Value<Number>,
    /// An intended mistake: the type cannot represent an unknown value.
    known: Option<String>,
    items: Value<BTreeMap<String, Item>>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Item {
    host: Value<String>,
    port: ValueNumber,
    key: Value<String>,
}

impl State {
    fn name(&self) -> &str {
        text(&self.name)
    }

    fn mode(&self) -> &str {
        text(&self.mode)
    }
}

fn text(value: &Value<String>) -> &str {
    value.as_ref_option().map_or("", String::as_str)
}

#[async_trait]
impl Resource for Probe {
    type State = State;

    fn schema(&self) -> Schema {
        use AttributeType::{AttributeMap, Number, String};
        let item = attributes([
            ("host", required(String, "A host.")),
            ("port", optional(Number, "A whole number.")),
            ("key", sensitive(optional(String, "Not shown."))),
        ]);
        schema(
            VERSION,
            "Misbehaves on request.",
            [
                ("id", computed(String, "Made from the name.")),
                ("name", required(String, "The name; a change replaces.")),
                ("mode", optional(String, "What to do wrong; see `Probe`'s source.")),
                ("create_ms", optional(Number, "How long create and update wait.")),
                ("destroy_ms", optional(Number, "How long destroy waits.")),
                ("blob_kib", optional(Number, "The size of `blob`.")),
                ("blob", computed(String, "Many letters.")),
                ("secret", sensitive(optional(String, "Not shown."))),
                ("weight", optional(Number, "Any number.")),
                ("known", optional(String, "Fails when it is not known yet.")),
                ("items", optional(AttributeMap(item), "Nested attributes.")),
            ],
        )
    }

    async fn validate(&self, config: State) -> Result<(), Problems> {
        if config.mode() == "invalid" {
            return Err(Problem::new("lab", "Invalid mode", "`invalid` is refused, as it says.", "")
                .at(AttributePath::new("mode"))
                .into());
        }
        Ok(())
    }

    async fn read(&self, state: State) -> Result<Option<State>, Problems> {
        journal::write("read", json!({"id": text(&state.id)}));
        match state.mode() {
            "gone" => Ok(None),
            "read_none" => Err(Problems::default()),
            _ => Ok(Some(state)),
        }
    }

    async fn plan_create(&self, mut proposed: State) -> Result<State, Problems> {
        journal::write("plan_create", json!({"name": shown(&proposed.name)}));
        proposed.id = Value::Unknown;
        proposed.blob = Value::Unknown;
        Ok(proposed)
    }

    async fn plan_update(
        &self,
        prior: State,
        mut proposed: State,
    ) -> Result<(State, Vec<AttributePath>), Problems> {
        proposed.id = prior.id;
        proposed.blob = prior.blob;
        let renamed = prior.name != proposed.name;
        Ok((proposed, renamed.then(|| AttributePath::new("name")).into_iter().collect()))
    }

    async fn create(&self, mut planned: State) -> Result<State, Problems> {
        let name = planned.name().to_owned();
        let mode = planned.mode().to_owned();
        let leaving = Leaving::enter("create", &name, json!({}));
        log(&name);
        planned.id = Value::Value(format!("id-{name}"));
        if mode == "panic_at_once" {
            boom("create");
        }
        call().checkpoint(&planned);
        match mode.as_str() {
            "panic" => boom("create"),
            "none" => return leaving.with("create_end", Err(Problems::default())),
            "fail" => {
                return leaving.with("create_end", Err(failed("Asked to fail", "The mode is `fail`.")));
            }
            _ => {}
        }
        if !wait(&planned.create_ms, mode == "unresponsive").await {
            return leaving.with(
                "create_stopped",
                Err(failed(
                    "Create interrupted",
                    "The probe exists, but it is not ready; the next apply replaces it.",
                )),
            );
        }
        let length =
            usize::try_from(planned.blob_kib.as_ref().copied().unwrap_or_default() << 10).unwrap_or_default();
        planned.blob = Value::Value("x".repeat(length));
        leaving.with("create_end", Ok(planned))
    }

    async fn update(&self, _: State, planned: State) -> Result<State, Problems> {
        let leaving = Leaving::enter("update", planned.name(), json!({}));
        if planned.mode() == "update_panic" {
            boom("update");
        }
        if !wait(&planned.create_ms, false).await {
            return leaving.with("update_stopped", Err(failed("Update interrupted", "Nothing was changed.")));
        }
        leaving.with("update_end", Ok(planned))
    }

    async fn destroy(&self, prior: State) -> Result<(), Problems> {
        let leaving = Leaving::enter("destroy", prior.name(), json!({}));
        // The variable makes the next attempt succeed in every mode.
        let mode = if std::env::var_os("LAB_BEHAVE").is_some() { "" } else { prior.mode() };
        match mode {
            "destroy_none" => return leaving.with("destroy_end", Err(Problems::default())),
            "destroy_panic" => boom("destroy"),
            "destroy_fail" => {
                return leaving
                    .with("destroy_end", Err(failed("Asked to fail", "The mode is `destroy_fail`.")));
            }
            _ => {}
        }
        if !wait(&prior.destroy_ms, mode == "unresponsive").await {
            return leaving
                .with("destroy_stopped", Err(failed("Destroy interrupted", "Nothing was removed.")));
        }
        leaving.with("destroy_end", Ok(()))
    }

    fn observe_stored_state(&self, state: &Json) {
        journal::write("observed", json!({"id": state["id"], "name": state["name"]}));
    }
}

/// Waits until done or stopped; an unresponsive one ignores the stop. Returns whether the wait was complete.
async fn wait(milliseconds: &ValueNumber, unresponsive: bool) -> bool {
    let milliseconds = milliseconds.as_ref().copied().unwrap_or_default();
    let wait = tokio::time::sleep(Duration::from_millis(u64::try_from(milliseconds).unwrap_or_default()));
    if unresponsive {
        wait.await;
        return true;
    }
    let stop = call().stop;
    tokio::select! {
        () = wait => true,
        () = stop.cancelled() => false,
    }
}

/// One line at each level, with fields that have names of hclog's keys.
fn log(name: &str) {
    tracing::error!(name, "said at error");
    tracing::warn!(name, attempt = 3, "said at warn");
    tracing::info!(name, ratio = 0.5, done = true, "said at info");
    tracing::debug!(name, "said at debug");
    tracing::trace!(name, "said at trace");
}

#[expect(clippy::panic, reason = "what the plugin host has to survive")]
fn boom(verb: &str) -> ! {
    panic!("boom in {verb}")
}

fn shown(value: &Value<String>) -> Json {
    match value {
        Value::Value(text) => json!(text),
        Value::Null => Json::Null,
        Value::Unknown => json!({"unknown": true}),
    }
}

/// Writes the end of a call, also if its future is dropped early, which is a bug.
struct Leaving {
    verb: &'static str,
    name: String,
    done: bool,
}

impl Leaving {
    fn enter(verb: &'static str, name: &str, mut fields: Json) -> Self {
        fields["name"] = json!(name);
        journal::write(&format!("{verb}_start"), fields);
        Self { verb, name: name.to_owned(), done: false }
    }

    fn with<T>(mut self, event: &str, result: T) -> T {
        self.done = true;
        journal::write(event, json!({"name": self.name}));
        result
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        if !self.done && !std::thread::panicking() {
            journal::write(&format!("{}_dropped", self.verb), json!({"name": self.name}));
        }
    }
}
