//! `grit_runner_health`: a gate over a map of runner managers. Its create and update return when every one of them is healthy.
//!
//! No attribute replaces it, and any change waits again for all. A failed create leaves nothing, a failed update leaves the prior
//! state, so that the next apply waits again (terraform-ordering, section 3f: a gate that kept its planned state would let the old
//! runners be drained although the new ones never became healthy).

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc, time::Duration};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use super::{add_error, configured, unique_suffix};
use crate::{
    args::{
        closed::{self, Closed, member},
        manager::{self, InvalidManager, RunnerManagerArgs, RunnerManagers},
        retry::RetryArgs,
        timeouts::{WaitTimeouts, check_duration, duration_or},
    },
    call::call,
    client::{ClientError, Level, Look, RunnerStatus},
    config::{Known, Settings, Shared},
    explain::{Code, Explained, operation},
    fleet::{
        self, Outcomes,
        health::{HealthPolicy, Healthy, NotHealthy},
    },
    schema::{
        AttributePath, AttributeType, Diagnostics, DiagnosticsExt, Resource, ResourceExt, Schema, Value,
        ValueEmpty, attributes, computed, optional, required, schema,
    },
};

const TIMEOUT: Duration = Duration::from_secs(600);

/// How long a refresh looks at each manager. All are looked at side by side, so this bounds a plan, too.
const LOOK_LIMIT: Duration = Duration::from_secs(10);

const HEALTHY: &str = "healthy";
const UNHEALTHY: &str = "unhealthy";

/// The resource.
#[derive(Debug)]
pub struct RunnerHealth {
    shared: Arc<Shared>,
}

/// State and configuration. It has no `Debug`: a manager may hold a private key.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HealthState {
    id: Value<String>,
    runner_managers: RunnerManagers,
    guards: Value<BTreeMap<String, Value<String>>>,
    level: Value<String>,
    stable_for: Value<String>,
    expected_version: Value<String>,
    start_if_stopped: Value<bool>,
    retry: Value<RetryArgs>,
    triggers: Value<BTreeMap<String, Value<String>>>,
    timeouts: Value<WaitTimeouts>,
    status: Value<String>,
    managers: Value<BTreeMap<String, Value<Evidence>>>,
}

/// What was proved of one manager.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Evidence {
    /// The runner's state as the wrapper reported it last; `unreachable` when nobody answered.
    state: Value<String>,
    /// The rung of the ladder that was proved.
    level: Value<String>,
    version: Value<String>,
    pid: Value<i64>,
    started_at: Value<String>,
    jobs: Value<i64>,
    wrapper: Value<String>,
    /// When the manager was proved healthy, RFC 3339 in UTC.
    proved_at: Value<String>,
}

/// The words of `level`. `Auto` is the highest rung on which the wrapper can see the runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Auto,
    Level(Level),
}

impl Closed for Wanted {
    const WORDS: &'static [(Self, &'static str)] = &[
        (Self::Auto, "auto"),
        (Self::Level(Level::Process), Level::Process.as_str()),
        (Self::Level(Level::Ready), Level::Ready.as_str()),
        (Self::Level(Level::Polling), Level::Polling.as_str()),
    ];
}

impl Evidence {
    /// What `look` proves at the moment `now`. Through upstream's wrapper only that the process was started.
    fn new(look: &Look, now: OffsetDateTime) -> Self {
        let detail = look.detail.as_deref();
        let level = detail.map_or(Level::Process, |detail| detail.level);
        Self {
            state: Value::Value(look.report.status.to_string()),
            level: Value::Value(level.to_string()),
            version: optional_value(detail.and_then(|detail| detail.runner_version.clone())),
            pid: optional_value(detail.and_then(|detail| detail.pid).map(i64::from)),
            started_at: optional_value(detail.and_then(|detail| detail.started_at).and_then(rfc3339)),
            jobs: optional_value(detail.and_then(|detail| detail.jobs).map(i64::from)),
            wrapper: Value::Value(detail.map_or_else(
                || "upstream".to_owned(),
                |detail| format!("grit-wrapper {}", detail.wrapper_version),
            )),
            proved_at: optional_value(rfc3339(now)),
        }
    }
}

fn optional_value<T>(value: Option<T>) -> Value<T> {
    value.map_or(Value::Null, Value::Value)
}

/// In UTC, to the second.
fn rfc3339(moment: OffsetDateTime) -> Option<String> {
    moment.replace_nanosecond(0).ok()?.format(&Rfc3339).ok()
}

/// How one manager's wait ended.
type Outcome = Result<Healthy, Unproved>;

enum Unproved {
    Invalid(InvalidManager),
    NotHealthy(NotHealthy<ClientError>),
}

impl RunnerHealth {
    pub fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Waits for all managers of `planned`, and fills in what was proved.
    async fn prove(
        &self,
        diags: &mut Diagnostics,
        mut planned: HealthState,
        timeout: Duration,
    ) -> Option<HealthState> {
        let managers = planned.known_managers();
        let outcomes = if managers.is_empty() {
            Outcomes::new()
        } else {
            let known = configured(&self.shared, diags)?;
            wait_for_all(&known, managers, &planned.policy(&known, timeout)).await
        };
        if report_failures(diags, &outcomes) {
            return None;
        }
        let now = OffsetDateTime::now_utc();
        let proved = outcomes.into_iter().filter_map(|(key, outcome)| {
            let evidence = Evidence::new(&outcome.ok()?.look, now);
            Some((key, Value::Value(evidence)))
        });
        planned.managers = Value::Value(proved.collect());
        planned.status = Value::Value(HEALTHY.to_owned());
        Some(planned)
    }
}

async fn wait_for_all(
    known: &Known,
    managers: BTreeMap<String, RunnerManagerArgs>,
    policy: &HealthPolicy,
) -> Outcomes<Outcome> {
    let stop = call().stop;
    fleet::for_each(managers, known.max_parallel, |key, manager| {
        let stop = stop.clone();
        async move {
            let target = manager.target(&key).map_err(Unproved::Invalid)?;
            let client = known.connector.client(target);
            let outcome = fleet::health::wait(&key, &client, policy, &stop).await;
            if let Ok(healthy) = &outcome {
                tracing::info!(
                    manager = key,
                    waited = crate::args::duration::human(healthy.waited),
                    "healthy"
                );
            }
            outcome.map_err(Unproved::NotHealthy)
        }
    })
    .await
}

/// One error for each manager that is not healthy, each saying how the others fared. False when all are healthy.
fn report_failures(diags: &mut Diagnostics, outcomes: &Outcomes<Outcome>) -> bool {
    let healthy: Vec<_> =
        outcomes.iter().filter(|(_, outcome)| outcome.is_ok()).map(|(key, _)| key.as_str()).collect();
    let others = match healthy.as_slice() {
        _ if outcomes.len() < 2 => String::new(),
        [] => format!("None of the {} runner managers is healthy.", outcomes.len()),
        some => format!("{} of {} are healthy: {}.", some.len(), outcomes.len(), some.join(", ")),
    };
    for (key, outcome) in outcomes {
        let explained = match outcome {
            Ok(_) => continue,
            Err(Unproved::NotHealthy(failure)) => operation::not_healthy(key, failure, &others),
            Err(Unproved::Invalid(error)) => Explained::new(
                Code::InvalidConfig,
                "Runner manager cannot be used",
                format!("Runner manager {key:?} has an {error}."),
                "Correct it in the configuration.",
            ),
        };
        add_error(diags, AttributePath::new("runner_managers").key(key.clone()), &explained);
    }
    healthy.len() < outcomes.len()
}

impl HealthState {
    /// The managers by key. At apply every value is known.
    fn known_managers(&self) -> BTreeMap<String, RunnerManagerArgs> {
        let entries = self.runner_managers.iter().flatten();
        entries.filter_map(|(key, manager)| Some((key.clone(), manager.as_ref_option()?.clone()))).collect()
    }

    fn policy(&self, known: &Known, timeout: Duration) -> HealthPolicy {
        HealthPolicy {
            timeout,
            stable_for: duration_or(&self.stable_for, Duration::ZERO),
            level: match member(&self.level) {
                Wanted::Auto => None,
                Wanted::Level(level) => Some(level),
            },
            expected_version: self.expected_version.as_ref_option().filter(|text| !text.is_empty()).cloned(),
            start_if_stopped: self.start_if_stopped.unwrap_or(false),
            // A host that boots refuses connections for minutes: the timeout is the limit, unless the user sets another.
            retry: known.retry(self.retry.as_ref_option(), None),
        }
    }

    fn timeout(&self, pick: fn(&WaitTimeouts) -> &Value<String>) -> Duration {
        self.timeouts.as_ref_option().map_or(TIMEOUT, |timeouts| duration_or(pick(timeouts), TIMEOUT))
    }

    fn check(&self, diags: &mut Diagnostics) {
        manager::check_all(&self.runner_managers, &AttributePath::new("runner_managers"), diags);
        closed::check::<Wanted>(&self.level, AttributePath::new("level"), diags);
        check_duration(&self.stable_for, AttributePath::new("stable_for"), diags);
        if let Value::Value(retry) = &self.retry {
            retry.check(&AttributePath::new("retry"), diags);
        }
        if let Value::Value(timeouts) = &self.timeouts {
            timeouts.check(&AttributePath::new("timeouts"), diags);
        }
    }
}

impl ResourceExt for RunnerHealth {}

#[async_trait]
impl Resource for RunnerHealth {
    type State<'a> = HealthState;
    type PrivateState<'a> = ValueEmpty;
    type ProviderMetaState<'a> = ValueEmpty;

    fn schema(&self, _: &mut Diagnostics) -> Option<Schema> {
        let texts = || AttributeType::Map(Box::new(AttributeType::String));
        let evidence = attributes([
            (
                "state",
                computed(
                    AttributeType::String,
                    "The runner's state as the wrapper reported it last; `unreachable` when nobody answered.",
                ),
            ),
            ("level", computed(AttributeType::String, "The level that was proved.")),
            ("version", computed(AttributeType::String, "The version that the runner tells.")),
            ("pid", computed(AttributeType::Number, "The runner's process.")),
            ("started_at", computed(AttributeType::String, "When that process was started (RFC 3339, UTC).")),
            ("jobs", computed(AttributeType::Number, "Jobs that ran when it was proved healthy.")),
            ("wrapper", computed(AttributeType::String, "`grit-wrapper` and its version, or `upstream`.")),
            ("proved_at", computed(AttributeType::String, "When it was proved healthy (RFC 3339, UTC).")),
        ]);
        Some(schema(
            0,
            "Waits, at create and at every change, until all runner managers of a map are healthy: their wrappers report `running`. \
             What depends on this resource is created after that, and what this resource depends on is destroyed after that.",
            [
                ("id", computed(AttributeType::String, "Unique.")),
                (
                    "runner_managers",
                    required(
                        AttributeType::AttributeMap(RunnerManagerArgs::attributes()),
                        "The runner managers, by a key that names them in every message. May be empty.",
                    ),
                ),
                (
                    "guards",
                    optional(
                        texts(),
                        "Identifiers of the `grit_runner_drain` of these managers. They are passed through: with them this gate changes \
                     whenever a guard is new, and old guards are destroyed only after it.",
                    ),
                ),
                (
                    "level",
                    optional(
                        AttributeType::String,
                        &format!(
                            "What counts as healthy: {}. `process`: the process lives; `ready`: it says that it is ready; `polling`: \
                             GitLab accepts its job requests. `auto` is the highest that can be seen: `polling` where the runner has \
                             `listen_address`, else `process`. Above `process` needs grit-wrapper on the host.",
                            Wanted::choices()
                        ),
                    ),
                ),
                (
                    "expected_version",
                    optional(
                        AttributeType::String,
                        "The version that the runner has to tell. Needs grit-wrapper on the host.",
                    ),
                ),
                (
                    "start_if_stopped",
                    optional(
                        AttributeType::Bool,
                        "Start a runner that has ended, once. Needs grit-wrapper on the host. Default `false`.",
                    ),
                ),
                (
                    "stable_for",
                    optional(
                        AttributeType::String,
                        "How long a manager has to stay healthy without a break. Default `0s`.",
                    ),
                ),
                (
                    "retry",
                    optional(
                        AttributeType::AttributeSingle(RetryArgs::attributes("until the timeout")),
                        "What to do about connections that fail.",
                    ),
                ),
                ("triggers", optional(texts(), "Values whose change waits again.")),
                (
                    "timeouts",
                    optional(AttributeType::AttributeSingle(WaitTimeouts::attributes("10m")), "Time limits."),
                ),
                (
                    "status",
                    computed(
                        AttributeType::String,
                        "`healthy`, or `unhealthy` when a refresh found a manager that is not: the next apply waits again.",
                    ),
                ),
                (
                    "managers",
                    computed(
                        AttributeType::AttributeMap(evidence),
                        "What was proved of each manager, by key.",
                    ),
                ),
            ],
        ))
    }

    async fn validate<'a>(&self, diags: &mut Diagnostics, config: HealthState) -> Option<()> {
        config.check(diags);
        (!diags.has_errors()).then_some(())
    }

    /// Looks at every manager for a bounded time. A manager that is not healthy, or that nobody reaches, is drift, not an error.
    async fn read<'a>(
        &self,
        _: &mut Diagnostics,
        mut state: HealthState,
        private: ValueEmpty,
        _: ValueEmpty,
    ) -> Option<(HealthState, ValueEmpty)> {
        let Settings::Known(known) = self.shared.settings() else { return Some((state, private)) };
        let stop = call().stop;
        let look = fleet::for_each(state.known_managers(), known.max_parallel, |key, manager| {
            let known = known.clone();
            async move {
                let client = known.connector.client(manager.target(&key).ok()?);
                let answer = tokio::time::timeout(LOOK_LIMIT, client.look()).await;
                match answer {
                    Ok(Ok(look)) => Some(look.report.status),
                    Ok(Err(error)) => {
                        tracing::info!(manager = key, "not reached by the refresh: {error}");
                        None
                    }
                    Err(_) => None,
                }
            }
        });
        let seen = tokio::select! {
            biased;
            () = stop.cancelled() => return Some((state, private)),
            seen = look => seen,
        };
        let all_run = seen.values().all(|status| *status == Some(RunnerStatus::Running));
        state.status = Value::Value(if all_run { HEALTHY } else { UNHEALTHY }.to_owned());
        if let Value::Value(evidence) = &mut state.managers {
            for (key, status) in seen {
                if let Some(Value::Value(evidence)) = evidence.get_mut(&key) {
                    evidence.state = Value::Value(
                        status.map_or_else(|| "unreachable".to_owned(), |status| status.to_string()),
                    );
                }
            }
        }
        Some((state, private))
    }

    async fn plan_create<'a>(
        &self,
        _: &mut Diagnostics,
        mut proposed: HealthState,
        _: HealthState,
        _: ValueEmpty,
    ) -> Option<(HealthState, ValueEmpty)> {
        proposed.id = Value::Unknown;
        proposed.status = Value::Unknown;
        proposed.managers = Value::Unknown;
        Some((proposed, Value::Null))
    }

    async fn plan_update<'a>(
        &self,
        diags: &mut Diagnostics,
        prior: HealthState,
        mut proposed: HealthState,
        _: HealthState,
        private: ValueEmpty,
        _: ValueEmpty,
    ) -> Option<(HealthState, ValueEmpty, Vec<AttributePath>)> {
        let drifted = prior.status != Value::Value(HEALTHY.to_owned());
        if drifted || proposed != prior {
            if drifted {
                diags.warn("Runner managers are not healthy", unhealthy_list(&prior));
            }
            proposed.status = Value::Unknown;
            proposed.managers = Value::Unknown;
        }
        Some((proposed, private, vec![]))
    }

    async fn plan_destroy<'a>(
        &self,
        _: &mut Diagnostics,
        _: HealthState,
        private: ValueEmpty,
        _: ValueEmpty,
    ) -> Option<ValueEmpty> {
        Some(private)
    }

    async fn create<'a>(
        &self,
        diags: &mut Diagnostics,
        mut planned: HealthState,
        _: HealthState,
        private: ValueEmpty,
        _: ValueEmpty,
    ) -> Option<(HealthState, ValueEmpty)> {
        planned.id = Value::Value(format!("health#{}", unique_suffix()));
        let timeout = planned.timeout(|timeouts| &timeouts.create);
        Some((self.prove(diags, planned, timeout).await?, private))
    }

    async fn update<'a>(
        &self,
        diags: &mut Diagnostics,
        _: HealthState,
        planned: HealthState,
        _: HealthState,
        private: ValueEmpty,
        _: ValueEmpty,
    ) -> Option<(HealthState, ValueEmpty)> {
        let timeout = planned.timeout(|timeouts| &timeouts.update);
        Some((self.prove(diags, planned, timeout).await?, private))
    }

    async fn destroy<'a>(
        &self,
        _: &mut Diagnostics,
        _: HealthState,
        _: ValueEmpty,
        _: ValueEmpty,
    ) -> Option<()> {
        Some(())
    }

    async fn import<'a>(&self, diags: &mut Diagnostics, _: String) -> Option<(HealthState, ValueEmpty)> {
        diags.fail(
            "A health gate cannot be imported",
            "It exists in Terraform's state alone. Write the resource block and apply: creating it waits, and changes nothing.",
        );
        None
    }
}

/// What the last refresh saw, for the warning at plan.
fn unhealthy_list(state: &HealthState) -> String {
    let mut text = "The last refresh found: ".to_owned();
    let mut separator = "";
    for (key, evidence) in state.managers.iter().flatten() {
        let Value::Value(Evidence { state: Value::Value(seen), .. }) = evidence else { continue };
        if *seen != RunnerStatus::Running.to_string() {
            let _ = write!(text, "{separator}{key} is `{seen}`");
            separator = ", ";
        }
    }
    text.push_str(". The apply waits for all of them again.");
    text
}
