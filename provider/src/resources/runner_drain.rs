//! `grit_runner_drain`: a guard on one runner manager. Its destroy drains the runner, and what it refers to is destroyed after it.
//!
//! Create, read and update touch no network and cannot fail: a create that failed would leave a tainted guard, whose replacement
//! drains a live runner (terraform-ordering, section 3f). All work is in the destroy, which can be repeated at any time.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::{add_error, configured, unique_suffix};
use crate::{
    args::{
        closed::{self, Closed, member},
        duration::human,
        manager::{self, RunnerManagerArgs, RunnerManagers},
        retry::RetryArgs,
        timeouts::{DeleteTimeout, duration_or},
    },
    call::call,
    client::{DrainRequest, RunnerStatus, ShutdownCallback, WrapperClient},
    config::{Known, Shared},
    explain::{self, Code, Explained, operation},
    fleet::{
        self,
        drain::{DrainPolicy, Drained, Mode, OnTimeout, OnUnreachable},
    },
    schema::{
        AttributePath, AttributeType, Diagnostics, DiagnosticsExt, MoveSource, Resource, ResourceExt, Schema,
        Value, ValueEmpty, attributes, computed, optional, required, schema, sensitive,
    },
};

const DELETE_TIMEOUT: Duration = Duration::from_secs(3 * 3600);

/// Attempts before a manager that was never reached counts as unreachable: about a minute and a half with the default delays.
/// A host that is to be drained has been up for long; waiting for hours would only hide that it is gone.
const ATTEMPTS: u32 = 12;

/// How long the check of one peer may take.
const PEER_LIMIT: Duration = Duration::from_secs(30);

/// The resource.
#[derive(Debug)]
pub struct RunnerDrain {
    shared: Arc<Shared>,
}

/// State and configuration. It has no `Debug`: the manager may hold a private key, the callback's headers a token.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DrainState {
    id: Value<String>,
    instance_id: Value<String>,
    runner_manager: Value<RunnerManagerArgs>,
    mode: Value<String>,
    on_timeout: Value<String>,
    on_unreachable: Value<String>,
    guard: Value<GuardArgs>,
    shutdown_callback: Value<CallbackArgs>,
    reason: Value<String>,
    retry: Value<RetryArgs>,
    timeouts: Value<DeleteTimeout>,
}

/// `guard = { peers, min_healthy }`.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
struct GuardArgs {
    peers: RunnerManagers,
    min_healthy: Value<i64>,
}

/// `shutdown_callback = { url, method, headers }`.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
struct CallbackArgs {
    url: Value<String>,
    method: Value<String>,
    headers: Value<BTreeMap<String, Value<String>>>,
}

impl Closed for Mode {
    const WORDS: &'static [(Self, &'static str)] =
        &[(Self::Graceful, "graceful"), (Self::Forceful, "forceful")];
}

impl Closed for OnTimeout {
    const WORDS: &'static [(Self, &'static str)] = &[(Self::Fail, "fail"), (Self::Force, "force")];
}

impl Closed for OnUnreachable {
    const WORDS: &'static [(Self, &'static str)] =
        &[(Self::Fail, "fail"), (Self::AssumeTerminated, "assume_terminated")];
}

impl RunnerDrain {
    pub fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Refuses when too few peers are healthy, unless the drain has begun already.
    async fn peers_allow(
        &self,
        state: &DrainState,
        name: &str,
        client: &WrapperClient,
        known: &Known,
        diags: &mut Diagnostics,
    ) -> Option<()> {
        let Value::Value(guard) = &state.guard else { return Some(()) };
        if let Ok(look) = client.look().await
            && matches!(look.report.status, RunnerStatus::InShutdown | RunnerStatus::Stopped)
        {
            return Some(());
        }
        let mut targets = BTreeMap::new();
        for (key, peer) in guard.peers.iter().flatten() {
            let Value::Value(peer) = peer else { continue };
            targets.insert(key.clone(), peer.target(key));
        }
        let looks = fleet::for_each(targets, known.max_parallel, |key, target| async move {
            let target = target.map_err(|error| format!("{key} ({error})"))?;
            let client = known.connector.client(target);
            match tokio::time::timeout(PEER_LIMIT, client.look()).await {
                Ok(Ok(look)) if look.report.status == RunnerStatus::Running => Ok(()),
                Ok(Ok(look)) => Err(format!("{key} (status `{}`)", look.report.status)),
                Ok(Err(error)) => Err(format!("{key} ({error})")),
                Err(_) => Err(format!("{key} (no answer within {})", human(PEER_LIMIT))),
            }
        })
        .await;
        let healthy = looks.values().filter(|look| look.is_ok()).count();
        let wanted = usize::try_from(guard.min_healthy.unwrap_or(1)).unwrap_or(usize::MAX);
        if healthy >= wanted {
            return Some(());
        }
        let unhealthy: Vec<_> = looks.into_values().filter_map(Result::err).collect();
        let explained = operation::too_few_peers(name, healthy, wanted, &unhealthy);
        add_error(diags, AttributePath::new("guard"), &explained);
        None
    }
}

impl DrainState {
    /// The name for messages: the instance's name, else its identifier.
    fn name(&self) -> String {
        let manager = self.runner_manager.as_ref_option();
        let name =
            manager.and_then(|manager| manager.instance_name.as_ref_option()).filter(|name| !name.is_empty());
        name.or_else(|| self.instance_id.as_ref_option()).cloned().unwrap_or_default()
    }

    fn address(&self) -> &str {
        let manager = self.runner_manager.as_ref_option();
        manager.and_then(|manager| manager.address.as_ref_option()).map_or("(unknown)", String::as_str)
    }

    fn timeout(&self) -> Duration {
        let timeouts = self.timeouts.as_ref_option();
        timeouts.map_or(DELETE_TIMEOUT, |timeouts| duration_or(&timeouts.delete, DELETE_TIMEOUT))
    }

    fn policy(&self, known: &Known) -> DrainPolicy {
        DrainPolicy {
            mode: member(&self.mode),
            timeout: self.timeout(),
            on_timeout: member(&self.on_timeout),
            on_unreachable: member(&self.on_unreachable),
            request: self.request(),
            retry: known.retry(self.retry.as_ref_option(), Some(ATTEMPTS)),
        }
    }

    /// Who asks the wrapper, and why. The guard's identifier makes a repeated destroy the same drain.
    fn request(&self) -> DrainRequest {
        DrainRequest {
            id: self.id.as_ref_option().cloned().unwrap_or_default(),
            reason: self.reason.as_ref_option().cloned().unwrap_or_default(),
            forceful: false,
            callback: self.shutdown_callback.as_ref_option().and_then(CallbackArgs::callback),
            // Set by GitLab Runner for the jobs it runs, such as the one that may be running this apply.
            job_url: std::env::var("CI_JOB_URL").unwrap_or_default(),
        }
    }

    fn check(&self, diags: &mut Diagnostics) {
        if let Value::Value(instance) = &self.instance_id
            && instance.is_empty()
        {
            diags.fail_at(
                AttributePath::new("instance_id"),
                "Instance identifier is empty",
                "`instance_id` is what ties the drain to its instance. Refer to the identifier of the instance, as in \
                 `aws_instance.this.id`.",
            );
        }
        if let Value::Value(manager) = &self.runner_manager {
            manager.check(&AttributePath::new("runner_manager"), diags);
        }
        closed::check::<Mode>(&self.mode, AttributePath::new("mode"), diags);
        closed::check::<OnTimeout>(&self.on_timeout, AttributePath::new("on_timeout"), diags);
        closed::check::<OnUnreachable>(&self.on_unreachable, AttributePath::new("on_unreachable"), diags);
        if let Value::Value(guard) = &self.guard {
            guard.check(&AttributePath::new("guard"), diags);
        }
        if let Value::Value(callback) = &self.shutdown_callback {
            callback.check(&AttributePath::new("shutdown_callback"), diags);
        }
        if let Value::Value(retry) = &self.retry {
            retry.check(&AttributePath::new("retry"), diags);
        }
        if let Value::Value(timeouts) = &self.timeouts {
            timeouts.check(&AttributePath::new("timeouts"), diags);
        }
    }

    /// What a destroy of this guard does, for a warning at plan.
    fn warn_of_drain(&self, diags: &mut Diagnostics) {
        let how = match member(&self.mode) {
            Mode::Graceful => "It takes no further jobs and ends after its last one",
            Mode::Forceful => "Its running jobs are ABORTED (`mode = \"forceful\"`)",
        };
        diags.warn(
            format!("Runner manager {} will be shut down", self.name()),
            format!("Host {}. {how}; this may take up to {}.", self.address(), human(self.timeout())),
        );
    }
}

impl GuardArgs {
    fn check(&self, path: &AttributePath, diags: &mut Diagnostics) {
        manager::check_all(&self.peers, &path.clone().attribute("peers"), diags);
        if let (Value::Value(peers), Value::Value(min)) = (&self.peers, self.min_healthy)
            && usize::try_from(min).map_or(true, |min| min > peers.len())
        {
            diags.fail_at(
                path.clone().attribute("min_healthy"),
                "Invalid number of healthy peers",
                format!(
                    "{min} of {} peer(s) can never be healthy: give a number from 0 to {}.",
                    peers.len(),
                    peers.len()
                ),
            );
        }
    }
}

impl CallbackArgs {
    fn check(&self, path: &AttributePath, diags: &mut Diagnostics) {
        if let Value::Value(url) = &self.url
            && !(url.starts_with("http://") || url.starts_with("https://"))
        {
            diags.fail_at(
                path.clone().attribute("url"),
                "Malformed URL",
                "The callback's URL begins with `http://` or `https://`.",
            );
        }
    }

    fn callback(&self) -> Option<ShutdownCallback> {
        let headers = self.headers.iter().flatten();
        Some(ShutdownCallback {
            url: self.url.as_ref_option()?.clone(),
            method: self.method.as_ref_option().map_or("POST", String::as_str).to_owned(),
            headers: headers
                .filter_map(|(name, value)| Some((name.clone(), value.as_ref_option()?.clone())))
                .collect(),
        })
    }
}

impl ResourceExt for RunnerDrain {
    fn observe_stored_state(&self, state: &Json) {
        if let Some(instance) = state.get("instance_id").and_then(Json::as_str) {
            self.shared.guard.stored(instance);
        }
    }

    /// Adopts the usual "drain by destroy provisioner" constructs. The guard starts without a drain; the next apply fills it in place.
    fn move_json(&self, diags: &mut Diagnostics, source: MoveSource) -> Option<Json> {
        match source.type_name.as_str() {
            "terraform_data" | "null_resource" => {
                Some(json!({ "id": format!("adopted#{}", unique_suffix()) }))
            }
            other => {
                diags.fail(
                    "This resource cannot be adopted",
                    format!(
                        "grit_runner_drain takes the place of `terraform_data` and `null_resource`, not of `{other}`. Remove the \
                         `moved` block and let Terraform create the guard: that has no side effects."
                    ),
                );
                None
            }
        }
    }
}

#[async_trait]
impl Resource for RunnerDrain {
    type State<'a> = DrainState;
    type PrivateState<'a> = ValueEmpty;
    type ProviderMetaState<'a> = ValueEmpty;

    fn schema(&self, _: &mut Diagnostics) -> Option<Schema> {
        let text = |description: &str| optional(AttributeType::String, description);
        let guard = attributes([
            (
                "peers",
                required(
                    AttributeType::AttributeMap(RunnerManagerArgs::attributes()),
                    "Other runner managers, by key.",
                ),
            ),
            (
                "min_healthy",
                optional(
                    AttributeType::Number,
                    "How many of them have to be running before this one is drained. Default 1.",
                ),
            ),
        ]);
        let callback = attributes([
            ("url", required(AttributeType::String, "Where the wrapper sends the request.")),
            ("method", text("HTTP method. Default `POST`.")),
            (
                "headers",
                sensitive(optional(
                    AttributeType::Map(Box::new(AttributeType::String)),
                    "HTTP headers. **They are stored in the state.**",
                )),
            ),
        ]);
        Some(schema(
            0,
            "Guards one runner manager: when this resource is destroyed, the runner is shut down gracefully, and the destroy ends \
             when its process has ended. What this resource refers to, the instance above all, is destroyed only after that.",
            [
                (
                    "id",
                    computed(
                        AttributeType::String,
                        "Readable and unique: `<instance_name>@<address>#<random>`.",
                    ),
                ),
                (
                    "instance_id",
                    required(
                        AttributeType::String,
                        "Identifier of the instance. A new identifier means a new instance: it is the only attribute whose change \
                     replaces the guard, and so drains the old runner.",
                    ),
                ),
                (
                    "runner_manager",
                    required(
                        AttributeType::AttributeSingle(RunnerManagerArgs::attributes()),
                        "The runner manager that is guarded.",
                    ),
                ),
                (
                    "mode",
                    text(&format!(
                        "How the runner is shut down: {}. `forceful` aborts its jobs.",
                        Mode::choices()
                    )),
                ),
                (
                    "on_timeout",
                    text(&format!(
                        "When the runner has not ended in time: {}. `force` aborts the jobs that are left.",
                        OnTimeout::choices()
                    )),
                ),
                (
                    "on_unreachable",
                    text(&format!(
                        "When the wrapper cannot be reached: {}. `assume_terminated` is your word that the host is gone: whatever still \
                     runs there is lost.",
                        OnUnreachable::choices()
                    )),
                ),
                (
                    "guard",
                    optional(
                        AttributeType::AttributeSingle(guard),
                        "Refuse to drain while too few other runner managers are healthy.",
                    ),
                ),
                (
                    "shutdown_callback",
                    optional(
                        AttributeType::AttributeSingle(callback),
                        "An HTTP request that the wrapper makes once the runner process has ended.",
                    ),
                ),
                (
                    "reason",
                    text(
                        "Why the runner is drained: for the log here, and for whoever asks the wrapper on the host.",
                    ),
                ),
                (
                    "retry",
                    optional(
                        AttributeType::AttributeSingle(RetryArgs::attributes("12")),
                        "What to do about connections that fail before the shutdown was accepted. After that, a lost connection is tried \
                     again until the timeout.",
                    ),
                ),
                (
                    "timeouts",
                    optional(AttributeType::AttributeSingle(DeleteTimeout::attributes("3h")), "Time limits."),
                ),
            ],
        ))
    }

    async fn validate<'a>(&self, diags: &mut Diagnostics, config: DrainState) -> Option<()> {
        config.check(diags);
        (!diags.has_errors()).then_some(())
    }

    async fn read<'a>(
        &self,
        _: &mut Diagnostics,
        state: DrainState,
        private: ValueEmpty,
        _: ValueEmpty,
    ) -> Option<(DrainState, ValueEmpty)> {
        // No network: an unreachable host must not make plan and destroy impossible, and a runner that ended is no reason to
        // forget its guard.
        Some((state, private))
    }

    async fn plan_create<'a>(
        &self,
        diags: &mut Diagnostics,
        mut proposed: DrainState,
        _: DrainState,
        _: ValueEmpty,
    ) -> Option<(DrainState, ValueEmpty)> {
        if let Value::Value(instance) = &proposed.instance_id
            && !self.shared.guard.may_create(instance)
        {
            add_error(diags, AttributePath::new("instance_id"), &operation::second_guard(instance));
            return None;
        }
        proposed.id = Value::Unknown;
        Some((proposed, Value::Null))
    }

    async fn plan_update<'a>(
        &self,
        diags: &mut Diagnostics,
        prior: DrainState,
        proposed: DrainState,
        _: DrainState,
        private: ValueEmpty,
        _: ValueEmpty,
    ) -> Option<(DrainState, ValueEmpty, Vec<AttributePath>)> {
        // An adopted guard has no instance yet: filling it in is an update.
        let replaced = prior.instance_id.is_value() && prior.instance_id != proposed.instance_id;
        if replaced {
            // Terraform does not ask for the destroy half of a replacement while it plans.
            prior.warn_of_drain(diags);
        }
        let paths = if replaced { vec![AttributePath::new("instance_id")] } else { vec![] };
        Some((proposed, private, paths))
    }

    async fn plan_destroy<'a>(
        &self,
        diags: &mut Diagnostics,
        prior: DrainState,
        private: ValueEmpty,
        _: ValueEmpty,
    ) -> Option<ValueEmpty> {
        if let Value::Value(instance) = &prior.instance_id
            && !self.shared.guard.may_destroy(instance)
        {
            add_error(diags, AttributePath::root(), &operation::second_guard(instance));
            return None;
        }
        if prior.instance_id.is_value() {
            prior.warn_of_drain(diags);
        }
        Some(private)
    }

    async fn create<'a>(
        &self,
        _: &mut Diagnostics,
        mut planned: DrainState,
        _: DrainState,
        private: ValueEmpty,
        _: ValueEmpty,
    ) -> Option<(DrainState, ValueEmpty)> {
        planned.id = Value::Value(format!("{}@{}#{}", planned.name(), planned.address(), unique_suffix()));
        if let Value::Value(instance) = &planned.instance_id {
            self.shared.guard.created(instance);
        }
        Some((planned, private))
    }

    async fn update<'a>(
        &self,
        _: &mut Diagnostics,
        _: DrainState,
        planned: DrainState,
        _: DrainState,
        private: ValueEmpty,
        _: ValueEmpty,
    ) -> Option<(DrainState, ValueEmpty)> {
        Some((planned, private))
    }

    async fn destroy<'a>(
        &self,
        diags: &mut Diagnostics,
        prior: DrainState,
        _: ValueEmpty,
        _: ValueEmpty,
    ) -> Option<()> {
        let (Value::Value(instance), Value::Value(manager)) = (&prior.instance_id, &prior.runner_manager)
        else {
            // Adopted by a `moved` block and never applied: it guards nothing yet.
            return Some(());
        };
        let name = prior.name();
        if self.shared.guard.is_superseded(instance) {
            diags.warn(
                format!("Runner manager {name} was not drained"),
                format!(
                    "This guard of instance {instance:?} was replaced by another one for the same instance in the same apply, so the \
                     runner was left running. Make `instance_id` a value that is known at plan while the instance stays."
                ),
            );
            return Some(());
        }
        let known = configured(&self.shared, diags)?;
        let target = match manager.target(&name) {
            Ok(target) => target,
            Err(error) => {
                let explained = Explained::new(
                    Code::InvalidConfig,
                    "Runner manager cannot be used",
                    format!("The stored guard of {name:?} has an {error}."),
                    "Correct it in the configuration and apply that first.",
                );
                add_error(diags, AttributePath::new("runner_manager"), &explained);
                return None;
            }
        };
        let client = known.connector.client(target);
        let stop = call().stop;
        let reason = prior.reason.as_ref_option().map_or("", String::as_str);
        tracing::info!(manager = name, reason, "drain begins");
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            allowed = self.peers_allow(&prior, &name, &client, &known, diags) => allowed?,
        }
        match fleet::drain::run(&name, &client, &prior.policy(&known), &stop).await {
            Ok(Drained::AlreadyStopped { reason }) => {
                tracing::info!(manager = name, reason, "the runner had ended before");
            }
            Ok(Drained::Terminated { waited, forced, reason }) => {
                tracing::info!(
                    manager = name,
                    waited = human(waited),
                    forced,
                    reason,
                    "the runner has ended"
                );
                if forced {
                    diags.warn(
                        format!("Runner manager {name} was shut down forcefully"),
                        format!(
                            "It was not drained within {} (`on_timeout = \"force\"`): jobs that were left were aborted.",
                            human(prior.timeout())
                        ),
                    );
                }
            }
            Ok(Drained::AssumedTerminated { attempts, error }) => {
                let explained = explain::explain(&name, &error);
                diags.warn(
                    format!("Runner manager {name} was taken for terminated"),
                    format!(
                        "It was not reached in {attempts} attempts, and `on_unreachable = \"assume_terminated\"` says what that means. \
                         {}",
                        explained.happened
                    ),
                );
            }
            Err(failure) => {
                add_error(diags, AttributePath::root(), &operation::not_drained(&name, &failure));
                return None;
            }
        }
        Some(())
    }

    async fn import<'a>(&self, diags: &mut Diagnostics, _: String) -> Option<(DrainState, ValueEmpty)> {
        diags.fail(
            "A drain guard cannot be imported",
            "It exists in Terraform's state alone. Write the resource block and apply: creating it has no side effects.",
        );
        None
    }
}
