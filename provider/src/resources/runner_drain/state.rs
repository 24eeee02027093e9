//! The attributes of a drain resource, their checks, and their conversion.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::{
    client::{DrainRequest, ShutdownCallback, WrapperClient},
    config::{
        enum_attribute::{self, EnumAttribute, member},
        manager::{self, InvalidManager, RunnerManagerArgs, RunnerManagers},
        number::{check_whole, whole},
        retry::RetryArgs,
        text::{check_set, check_text},
        timeouts::{DeleteTimeout, duration_or},
    },
    explain::{
        drain::{self, Planned},
        values,
    },
    fleet::drain::{DrainPolicy, Mode, OnTimeout, OnUnreachable},
    process::Configured,
    schema::{
        AttributePath, AttributeType, Diagnostics, Number, Schema, Value, attributes, computed, optional,
        required, schema as schema_of, sensitive,
    },
};

const DELETE_TIMEOUT: Duration = Duration::from_secs(3 * 3600);

/// Attempts before a host that was never reached counts as unreachable: about 90 s with the default delays. The host has been running for
/// long, so a longer wait would only hide that it is gone.
const ATTEMPTS: u32 = 12;

/// State and configuration. Has no `Debug`: the runner manager may contain a private key, and the callback's headers a token.
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
    pub(super) min_healthy: Value<Number>,
}

/// `shutdown_callback = { url, method, headers }`.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct CallbackArgs {
    pub(super) url: Value<String>,
    pub(super) method: Value<String>,
    pub(super) headers: Value<BTreeMap<String, Value<String>>>,
}

impl EnumAttribute for Mode {
    const VALUES: &'static [(Self, &'static str)] =
        &[(Self::Graceful, "graceful"), (Self::Forceful, "forceful")];
}

impl EnumAttribute for OnTimeout {
    const VALUES: &'static [(Self, &'static str)] = &[(Self::Fail, "fail"), (Self::Force, "force")];
}

impl EnumAttribute for OnUnreachable {
    const VALUES: &'static [(Self, &'static str)] =
        &[(Self::Fail, "fail"), (Self::AssumeTerminated, "assume_terminated")];
}

impl DrainState {
    /// The instance. An empty id counts as none: a drain resource that was stored with it is updated in place.
    pub(super) fn instance(&self) -> Option<&str> {
        self.instance_id.as_ref_option().map(String::as_str).filter(|instance| !instance.is_empty())
    }

    /// The id of the drain resource; empty while it is planned.
    pub(super) fn id(&self) -> &str {
        self.id.as_ref_option().map_or("", String::as_str)
    }

    /// The name for messages: the name of the instance, its id, or the id of the drain resource.
    pub(super) fn name(&self) -> String {
        let manager = self.runner_manager.as_ref_option();
        let name =
            manager.and_then(|manager| manager.instance_name.as_ref_option()).filter(|name| !name.is_empty());
        name.map(String::as_str).or_else(|| self.instance()).unwrap_or_else(|| self.id()).to_owned()
    }

    pub(super) fn address(&self) -> &str {
        let manager = self.runner_manager.as_ref_option();
        manager.and_then(|manager| manager.address.as_ref_option()).map_or("(unknown)", String::as_str)
    }

    /// A client of the wrapper; or the invalid attribute, and why it is invalid.
    pub(super) fn client(&self, known: &Configured) -> Result<WrapperClient, (String, String)> {
        let Value::Value(manager) = &self.runner_manager else {
            return Err(("runner_manager".to_owned(), "it has no value".to_owned()));
        };
        known.client(&self.name(), manager).map_err(|InvalidManager { attribute, problem }| {
            (format!("runner_manager.{attribute}"), problem.to_string())
        })
    }

    pub(super) fn timeout(&self) -> Duration {
        let timeouts = self.timeouts.as_ref_option();
        timeouts.map_or(DELETE_TIMEOUT, |timeouts| duration_or(&timeouts.delete, DELETE_TIMEOUT))
    }

    pub(super) fn assumes_terminated(&self) -> bool {
        member::<OnUnreachable>(&self.on_unreachable) == OnUnreachable::AssumeTerminated
    }

    pub(super) fn policy(&self, known: &Configured, start: Instant) -> DrainPolicy {
        DrainPolicy {
            mode: member(&self.mode),
            start,
            timeout: self.timeout(),
            on_timeout: member(&self.on_timeout),
            on_unreachable: member(&self.on_unreachable),
            request: self.request(),
            retry: known.retry(self.retry.as_ref_option(), Some(ATTEMPTS)),
        }
    }

    /// The request. A repeated destroy has the same id, so it is the same drain.
    pub(super) fn request(&self) -> DrainRequest {
        DrainRequest {
            id: self.id.as_ref_option().cloned().unwrap_or_default(),
            reason: self.reason.as_ref_option().cloned().unwrap_or_default(),
            forceful: false,
            callback: self.shutdown_callback.as_ref_option().and_then(CallbackArgs::callback),
            // Set by GitLab Runner if this apply runs in a CI job.
            job_url: std::env::var("CI_JOB_URL").unwrap_or_default(),
        }
    }

    pub(super) fn check(&self, diags: &mut Diagnostics) {
        check_text(&self.instance_id, AttributePath::new("instance_id"), diags);
        check_set(&self.runner_manager, AttributePath::new("runner_manager"), diags);
        if let Value::Value(manager) = &self.runner_manager {
            manager.check(&AttributePath::new("runner_manager"), diags);
        }
        enum_attribute::check::<Mode>(&self.mode, AttributePath::new("mode"), diags);
        enum_attribute::check::<OnTimeout>(&self.on_timeout, AttributePath::new("on_timeout"), diags);
        enum_attribute::check::<OnUnreachable>(
            &self.on_unreachable,
            AttributePath::new("on_unreachable"),
            diags,
        );
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

    /// Warns that a destroy drains the runner. `next` is the planned instance id.
    pub(super) fn warn_of_drain(&self, next: Option<&Value<String>>, diags: &mut Diagnostics) {
        let planned = Planned {
            mode: member(&self.mode),
            timeout: self.timeout(),
            on_timeout: member(&self.on_timeout),
            unknown_instance: next.is_some_and(Value::is_unknown),
        };
        drain::planned(&self.name(), self.address(), &planned).warning(AttributePath::root(), diags);
    }
}

impl GuardArgs {
    pub(super) fn min_healthy(&self) -> usize {
        whole(&self.min_healthy).unwrap_or(1)
    }

    pub(super) fn check(&self, path: &AttributePath, diags: &mut Diagnostics) {
        let at = |name: &'static str| path.clone().attribute(name);
        manager::check_all(&self.peers, &at("peers"), diags);
        check_whole(&self.min_healthy, 0..=1_000_000, at("min_healthy"), diags);
        if let Value::Value(peers) = &self.peers
            && !self.min_healthy.is_unknown()
            && self.min_healthy() > peers.len()
            && self.min_healthy() <= 1_000_000
        {
            let (path, wanted, there) = (at("min_healthy"), self.min_healthy(), peers.len());
            values::min_healthy(&path, wanted, there).error(path, diags);
        }
    }
}

impl CallbackArgs {
    /// Rejects values that the wrapper would reject.
    pub(super) fn check(&self, path: &AttributePath, diags: &mut Diagnostics) {
        let at = |name: &'static str| path.clone().attribute(name);
        check_set(&self.url, at("url"), diags);
        if let Value::Value(url) = &self.url
            && !is_http_url(url)
        {
            let path = at("url");
            values::url(&path).error(path, diags);
        }
        if let Value::Value(method) = &self.method
            && http::Method::from_bytes(method.as_bytes()).is_err()
        {
            let path = at("method");
            values::http_method(&path, method).error(path, diags);
        }
        for (name, value) in self.headers.iter().flatten() {
            let path = at("headers").key(name.clone());
            if http::HeaderName::from_bytes(name.as_bytes()).is_err() {
                values::http_header_name(&path, name).error(path.clone(), diags);
            }
            match value {
                Value::Value(value) if http::HeaderValue::from_str(value).is_err() => {
                    values::http_header_value(&path).error(path, diags);
                }
                value => check_set(value, path, diags),
            }
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

fn is_http_url(text: &str) -> bool {
    text.parse::<http::Uri>().is_ok_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty())
    })
}

/// The schema of the resource.
pub(super) fn schema() -> Schema {
    let text = |description: &str| optional(AttributeType::String, description);
    let guard = attributes([
        (
            "peers",
            required(
                AttributeType::AttributeMap(RunnerManagerArgs::attributes()),
                "Other runner managers, by key. The drain starts only while enough of them are healthy.",
            ),
        ),
        (
            "min_healthy",
            optional(
                AttributeType::Number,
                "Number of peers that must be running before this runner manager is drained. Default 1.",
            ),
        ),
    ]);
    let callback = attributes([
        ("url", required(AttributeType::String, "URL that the wrapper sends the request to.")),
        ("method", text("Any HTTP method. Default `POST`.")),
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
        "Drains one runner manager when this resource is destroyed: the runner is shut down gracefully, and the destroy completes when its \
         process has exited. Resources that this resource refers to, such as the instance, are destroyed after that.",
        [
            (
                "id",
                computed(AttributeType::String, "Unique identifier: `<instance_name>@<address>#<random>`."),
            ),
            (
                "instance_id",
                required(
                    AttributeType::String,
                    "Identifier of the instance. A new identifier means a new instance: only a change of this attribute replaces the \
                     resource, which drains the old runner.",
                ),
            ),
            (
                "runner_manager",
                required(
                    AttributeType::AttributeSingle(RunnerManagerArgs::attributes()),
                    "The runner manager to drain.",
                ),
            ),
            (
                "mode",
                text(&format!("Kind of shutdown: {}. `forceful` aborts the running jobs.", Mode::choices())),
            ),
            (
                "on_timeout",
                text(&format!(
                    "Action when the runner has not exited in time: {}. `force` aborts the remaining jobs, and waits at most 2 more minutes.",
                    OnTimeout::choices()
                )),
            ),
            (
                "on_unreachable",
                text(&format!(
                    "Action when the host is unreachable before the shutdown was requested: {}. `assume_terminated` treats an unreachable \
                     host as terminated: jobs that are still running there are lost.",
                    OnUnreachable::choices()
                )),
            ),
            (
                "guard",
                optional(
                    AttributeType::AttributeSingle(guard),
                    "Condition for the drain: enough other runner managers are healthy.",
                ),
            ),
            (
                "shutdown_callback",
                optional(
                    AttributeType::AttributeSingle(callback),
                    "HTTP request that the wrapper sends after the runner process has exited.",
                ),
            ),
            (
                "reason",
                text("Reason of the drain. It is shown in Terraform's log and in the status of the wrapper."),
            ),
            (
                "retry",
                optional(
                    AttributeType::AttributeSingle(RetryArgs::attributes("12")),
                    "Retries of failed connections before the shutdown was requested. After that, lost connections are retried until the \
                     timeout.",
                ),
            ),
            (
                "timeouts",
                optional(AttributeType::AttributeSingle(DeleteTimeout::attributes("3h")), "Timeouts."),
            ),
        ],
    )
}
