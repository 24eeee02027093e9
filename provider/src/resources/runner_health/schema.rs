//! The schema of `grit_runner_health`.

use super::state::{HEALTH_TIMEOUT, Wanted};
use crate::{
    config::{
        enum_attribute::EnumAttribute, manager::RunnerManagerArgs, observed::Observed, retry::RetryArgs,
        timeouts::WaitTimeouts,
    },
    duration::human,
    schema::{AttributeType, Schema, attributes, computed, optional, required, schema as schema_of},
};

/// The schema of the resource.
pub(super) fn schema() -> Schema {
    let texts = || AttributeType::Map(Box::new(AttributeType::String));
    let mut evidence = attributes([
        (
            "state",
            computed(
                AttributeType::String,
                "Runner state in the last report of the wrapper; `unreachable` when the wrapper did not respond.",
            ),
        ),
        (
            "level",
            computed(
                AttributeType::String,
                "Health level in the last report. It is at most `polling`, unless `level = \"working\"` is set.",
            ),
        ),
        ("jobs", computed(AttributeType::Number, "Number of running jobs when the health was verified.")),
        (
            "jobs_succeeded",
            computed(
                AttributeType::Number,
                "Number of jobs that had succeeded since the start of the process when the health was verified.",
            ),
        ),
        (
            "verified_at",
            computed(AttributeType::String, "Time at which the health was verified (RFC 3339, UTC)."),
        ),
        (
            "problem",
            computed(
                AttributeType::String,
                "Why the last refresh reported the runner manager as not healthy; null when it is healthy.",
            ),
        ),
    ]);
    evidence.extend(Observed::attributes());
    schema_of(
        0,
        "Waits at create and at every update until all runner managers of a map are healthy at `level`. Resources that depend on this \
         resource are created after that, and resources that this resource depends on are destroyed after that.",
        [
            ("id", computed(AttributeType::String, "Unique identifier.")),
            (
                "runner_managers",
                required(
                    AttributeType::AttributeMap(RunnerManagerArgs::attributes()),
                    "The runner managers. Messages identify each one by its key in this map. May be empty.",
                ),
            ),
            (
                "guards",
                optional(
                    texts(),
                    "The `id` of the `grit_runner_drain` of each runner manager, by key. A new drain resource changes this attribute, so the \
                     health check runs again before old drain resources are destroyed. If it is set, a plan warns about each runner manager \
                     without an entry.",
                ),
            ),
            (
                "level",
                optional(
                    AttributeType::String,
                    &format!(
                        "Required health level: {}. Each level includes the levels before it; the section \"Health levels\" describes \
                         them. Levels above `process` require grit-wrapper on the host.",
                        Wanted::choices()
                    ),
                ),
            ),
            (
                "min_jobs",
                optional(
                    AttributeType::Number,
                    "Number of jobs that must have ended successfully on each runner manager since the start of its process. Requires \
                     `level = \"working\"`. Default 1. The log shows the progress (`0 of 1 jobs`).",
                ),
            ),
            (
                "allow_shared_worker_group",
                optional(
                    AttributeType::Bool,
                    "Accept runner managers of this map that use the same autoscaling group (`plugin_config` of `[runners.autoscaler]`). \
                     Default `false`: the health check refuses them, because a runner manager removes instances that it did not create, with \
                     their jobs. Replace the group together with its manager.",
                ),
            ),
            (
                "expected_version",
                optional(
                    AttributeType::String,
                    "Version that the runner must report. Requires grit-wrapper on the host, and a `listen_address` in the configuration of \
                     the runner.",
                ),
            ),
            (
                "start_if_stopped",
                optional(
                    AttributeType::Bool,
                    "Start a runner that has exited, once. Requires grit-wrapper on the host. Default `false`. For blue/green layouts with \
                     permanent instances.",
                ),
            ),
            (
                "stable_for",
                optional(
                    AttributeType::String,
                    "Time for which each runner manager must stay healthy without interruption. Default `0s`. It must be shorter than both \
                     `timeouts`.",
                ),
            ),
            (
                "retry",
                optional(
                    AttributeType::AttributeSingle(RetryArgs::attributes("until the timeout")),
                    "Retries of failed connections. A host can refuse connections for minutes while it boots.",
                ),
            ),
            (
                "triggers",
                optional(texts(), "Arbitrary values. A change of any value repeats the health check."),
            ),
            (
                "timeouts",
                optional(
                    AttributeType::AttributeSingle(WaitTimeouts::attributes(
                        &human(HEALTH_TIMEOUT),
                        ": connections, logins, retries and `stable_for`",
                    )),
                    "Timeouts.",
                ),
            ),
            (
                "status",
                computed(
                    AttributeType::String,
                    "`healthy`, or `unhealthy` if a refresh found a runner manager that is not healthy. In this case, the next apply \
                     repeats the health check.",
                ),
            ),
            (
                "managers",
                computed(
                    AttributeType::AttributeMap(evidence),
                    "Verified health of each runner manager, by key. Unknown values are null, never zero.",
                ),
            ),
        ],
    )
}
