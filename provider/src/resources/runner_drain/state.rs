//! What a drain guard holds: its attributes, their checks, and what they mean to the layers below.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    args::{
        closed::{self, Closed, member},
        duration::human,
        manager::{self, RunnerManagerArgs, RunnerManagers},
        retry::RetryArgs,
        timeouts::{DeleteTimeout, duration_or},
    },
    client::{DrainRequest, ShutdownCallback},
    config::Known,
    fleet::drain::{DrainPolicy, Mode, OnTimeout, OnUnreachable},
    schema::{
        AttributePath, AttributeType, Diagnostics, DiagnosticsExt, Schema, Value, attributes, computed,
        optional, required, schema as schema_of, sensitive,
    },
};

const DELETE_TIMEOUT: Duration = Duration::from_secs(3 * 3600);

/// Attempts before a manager that was never reached counts as unreachable: about a minute and a half with the default delays.
/// A host that is to be drained has been up for long; waiting for hours would only hide that it is gone.
const ATTEMPTS: u32 = 12;

/// State and configuration. It has no `Debug`: the manager may hold a private key, the callback's headers a token.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DrainState {
    pub(super) id: Value<String>,
    pub(super) instance_id: Value<String>,
    pub(super) runner_manager: Value<RunnerManagerArgs>,
    pub(super) mode: Value<String>,
    pub(super) on_timeout: Value<String>,
    pub(super) on_unreachable: Value<String>,
    pub(super) guard: Value<GuardArgs>,
    pub(super) shutdown_callback: Value<CallbackArgs>,
    pub(super) reason: Value<String>,
    pub(super) retry: Value<RetryArgs>,
    pub(super) timeouts: Value<DeleteTimeout>,
}

/// `guard = { peers, min_healthy }`.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct GuardArgs {
    pub(super) peers: RunnerManagers,
    pub(super) min_healthy: Value<i64>,
}

/// `shutdown_callback = { url, method, headers }`.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct CallbackArgs {
    pub(super) url: Value<String>,
    pub(super) method: Value<String>,
    pub(super) headers: Value<BTreeMap<String, Value<String>>>,
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

impl DrainState {
    /// The name for messages: the instance's name, else its identifier.
    pub(super) fn name(&self) -> String {
        let manager = self.runner_manager.as_ref_option();
        let name =
            manager.and_then(|manager| manager.instance_name.as_ref_option()).filter(|name| !name.is_empty());
        name.or_else(|| self.instance_id.as_ref_option()).cloned().unwrap_or_default()
    }

    pub(super) fn address(&self) -> &str {
        let manager = self.runner_manager.as_ref_option();
        manager.and_then(|manager| manager.address.as_ref_option()).map_or("(unknown)", String::as_str)
    }

    pub(super) fn timeout(&self) -> Duration {
        let timeouts = self.timeouts.as_ref_option();
        timeouts.map_or(DELETE_TIMEOUT, |timeouts| duration_or(&timeouts.delete, DELETE_TIMEOUT))
    }

    pub(super) fn policy(&self, known: &Known) -> DrainPolicy {
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
    pub(super) fn request(&self) -> DrainRequest {
        DrainRequest {
            id: self.id.as_ref_option().cloned().unwrap_or_default(),
            reason: self.reason.as_ref_option().cloned().unwrap_or_default(),
            forceful: false,
            callback: self.shutdown_callback.as_ref_option().and_then(CallbackArgs::callback),
            // Set by GitLab Runner for the jobs it runs, such as the one that may be running this apply.
            job_url: std::env::var("CI_JOB_URL").unwrap_or_default(),
        }
    }

    pub(super) fn check(&self, diags: &mut Diagnostics) {
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
    pub(super) fn warn_of_drain(&self, diags: &mut Diagnostics) {
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
    pub(super) fn check(&self, path: &AttributePath, diags: &mut Diagnostics) {
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
    pub(super) fn check(&self, path: &AttributePath, diags: &mut Diagnostics) {
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

    pub(super) fn callback(&self) -> Option<ShutdownCallback> {
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

/// The schema of the resource.
pub(super) fn schema() -> Schema {
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
    schema_of(
        0,
        "Guards one runner manager: when this resource is destroyed, the runner is shut down gracefully, and the destroy ends \
             when its process has ended. What this resource refers to, the instance above all, is destroyed only after that.",
        [
            (
                "id",
                computed(AttributeType::String, "Readable and unique: `<instance_name>@<address>#<random>`."),
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
    )
}
