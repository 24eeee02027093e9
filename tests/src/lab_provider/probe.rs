//! `lab_probe`: a managed resource whose `mode` selects a fault.

use std::{borrow::Cow, collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use grit_plugin::{
    call,
    schema::{
        AttributePath, AttributeType, Diagnostics, DiagnosticsExt, MoveSource, Resource, Schema, Value,
        ValueAnyNumber, ValueNumber, ValueString, attributes, computed, optional, required, schema,
        sensitive,
    },
};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::journal;

/// The schema version; [`Probe`] also knows version 1, where `name` was `title`.
pub const VERSION: i64 = 2;

/// The resource.
pub struct Probe;

/// Its attributes; [`Probe::schema`](Resource::schema) describes them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct State<'a> {
    #[serde(borrow = "'a")]
    id: ValueString<'a>,
    name: ValueString<'a>,
    mode: ValueString<'a>,
    create_ms: ValueNumber,
    destroy_ms: ValueNumber,
    blob_kib: ValueNumber,
    blob: ValueString<'a>,
    secret: ValueString<'a>,
    weight: ValueAnyNumber,
    /// An intended mistake: the type cannot represent an unknown value.
    known: Option<Cow<'a, str>>,
    #[serde(borrow = "'a")]
    items: Value<BTreeMap<Cow<'a, str>, Item<'a>>>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Item<'a> {
    #[serde(borrow = "'a")]
    host: ValueString<'a>,
    port: ValueNumber,
    key: ValueString<'a>,
}

#[async_trait]
impl Resource for Probe {
    type State<'a> = State<'a>;

    fn schema(&self, _: &mut Diagnostics) -> Option<Schema> {
        use AttributeType::{AttributeMap, Number, String};
        let item = attributes([
            ("host", required(String, "A host.")),
            ("port", optional(Number, "A whole number.")),
            ("key", sensitive(optional(String, "Not shown."))),
        ]);
        Some(schema(
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
        ))
    }

    async fn validate<'a>(&self, diags: &mut Diagnostics, config: State<'a>) -> Option<()> {
        if config.mode.as_str() == "invalid" {
            diags.fail_at(AttributePath::new("mode"), "Invalid mode", "`invalid` is refused, as it says.");
            return None;
        }
        Some(())
    }

    async fn read<'a>(&self, _: &mut Diagnostics, state: State<'a>) -> Option<State<'a>> {
        journal::write("read", json!({"id": state.id.as_str()}));
        match state.mode.as_str() {
            "gone" => {
                call().gone();
                None
            }
            "read_none" => None,
            _ => Some(state),
        }
    }

    async fn plan_create<'a>(&self, _: &mut Diagnostics, mut proposed: State<'a>) -> Option<State<'a>> {
        journal::write("plan_create", json!({"name": shown(&proposed.name)}));
        proposed.id = Value::Unknown;
        proposed.blob = Value::Unknown;
        Some(proposed)
    }

    async fn plan_update<'a>(
        &self,
        _: &mut Diagnostics,
        prior: State<'a>,
        mut proposed: State<'a>,
    ) -> Option<(State<'a>, Vec<AttributePath>)> {
        proposed.id = prior.id;
        proposed.blob = prior.blob;
        let renamed = prior.name != proposed.name;
        Some((proposed, renamed.then(|| AttributePath::new("name")).into_iter().collect()))
    }

    async fn plan_destroy<'a>(&self, diags: &mut Diagnostics, prior: State<'a>) -> Option<()> {
        match prior.mode.as_str() {
            "refuse_destroy" => {
                diags.fail("Destroy refused", "The mode is `refuse_destroy`.");
                None
            }
            "warn_destroy" => {
                diags.warn_at(AttributePath::root(), "Destroy will hurt", "The mode is `warn_destroy`.");
                Some(())
            }
            _ => Some(()),
        }
    }

    async fn create<'a>(&self, diags: &mut Diagnostics, mut planned: State<'a>) -> Option<State<'a>> {
        let name = planned.name.as_str().to_owned();
        let mode = planned.mode.as_str().to_owned();
        let leaving = Leaving::enter("create", &name, json!({}));
        log(&name);
        planned.id = Value::Value(format!("id-{name}").into());
        if mode == "panic_at_once" {
            boom("create");
        }
        call().checkpoint(&planned);
        match mode.as_str() {
            "panic" => boom("create"),
            "none" => return leaving.with("create_end", None),
            "fail" => {
                diags.fail("Asked to fail", "The mode is `fail`.");
                return leaving.with("create_end", None);
            }
            "fail_partial" => {
                diags.fail("Asked to fail", "The mode is `fail_partial`.");
                return leaving.with("create_end", Some(planned));
            }
            _ => {}
        }
        if !wait(&planned.create_ms, mode == "unresponsive").await {
            diags.fail(
                "Create interrupted",
                "The probe exists, but it is not ready; the next apply replaces it.",
            );
            return leaving.with("create_stopped", Some(planned));
        }
        let length =
            usize::try_from(planned.blob_kib.as_ref().copied().unwrap_or_default() << 10).unwrap_or_default();
        planned.blob = Value::Value("x".repeat(length).into());
        leaving.with("create_end", Some(planned))
    }

    async fn update<'a>(
        &self,
        diags: &mut Diagnostics,
        _: State<'a>,
        planned: State<'a>,
    ) -> Option<State<'a>> {
        let leaving = Leaving::enter("update", planned.name.as_str(), json!({}));
        match planned.mode.as_str() {
            "update_fail" => {
                diags.fail("Asked to fail", "The mode is `update_fail`.");
                return leaving.with("update_end", None);
            }
            "update_panic" => boom("update"),
            _ => {}
        }
        if !wait(&planned.create_ms, false).await {
            diags.fail("Update interrupted", "Nothing was changed.");
            return leaving.with("update_stopped", None);
        }
        leaving.with("update_end", Some(planned))
    }

    async fn destroy<'a>(&self, diags: &mut Diagnostics, prior: State<'a>) -> Option<()> {
        let leaving = Leaving::enter("destroy", prior.name.as_str(), json!({}));
        // The variable makes the next attempt succeed in every mode.
        let mode = if std::env::var_os("LAB_BEHAVE").is_some() { "" } else { prior.mode.as_str() };
        match mode {
            "destroy_none" => return leaving.with("destroy_end", None),
            "destroy_panic" => boom("destroy"),
            "destroy_fail" => {
                diags.fail("Asked to fail", "The mode is `destroy_fail`.");
                return leaving.with("destroy_end", None);
            }
            _ => {}
        }
        if !wait(&prior.destroy_ms, mode == "unresponsive").await {
            diags.fail("Destroy interrupted", "Nothing was removed.");
            return leaving.with("destroy_stopped", None);
        }
        leaving.with("destroy_end", Some(()))
    }

    async fn import<'a>(&self, diags: &mut Diagnostics, id: String) -> Option<State<'a>> {
        let Some(name) = id.strip_prefix("id-").map(str::to_owned) else {
            diags.fail("Unknown id", format!("`{id}` is not the id of a probe: those begin with `id-`."));
            return None;
        };
        let state = State {
            id: Value::Value(id.into()),
            name: Value::Value(name.into()),
            mode: Value::Null,
            create_ms: Value::Null,
            destroy_ms: Value::Null,
            blob_kib: Value::Null,
            blob: Value::Value("".into()),
            secret: Value::Null,
            weight: Value::Null,
            known: None,
            items: Value::Null,
        };
        Some(state)
    }

    fn upgrade_json(&self, diags: &mut Diagnostics, version: i64, mut state: Json) -> Option<Json> {
        if version != 1 {
            diags.fail("Unknown version", format!("Version {version} never was."));
            return None;
        }
        let title = state.as_object_mut()?.remove("title");
        state["name"] = title.unwrap_or_default();
        Some(state)
    }

    fn move_json(&self, diags: &mut Diagnostics, source: MoveSource) -> Option<Json> {
        if source.type_name != "terraform_data" {
            diags.fail("Unknown source", format!("`{}` cannot become a probe.", source.type_name));
            return None;
        }
        Some(json!({"id": source.state["id"], "name": source.state["output"]["value"], "blob": ""}))
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

fn shown(value: &ValueString<'_>) -> Json {
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
