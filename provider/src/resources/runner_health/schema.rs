//! The schema of `grit_runner_health`.

use grit_plugin::{
    attribute_map,
    schema::{
        AttributeType, Schema, boolean, computed_as, computed_number, computed_text, number, object,
        object_schema, text, text_map,
    },
};

use super::state::{
    ALLOW_SHARED_WORKER_GROUP, HEALTH_TIMEOUT, MIN_JOBS, STABLE_FOR, START_DRAINS, START_IF_STOPPED, Wanted,
};
use crate::{
    config::{
        enum_attribute::EnumAttribute, manager::required_managers, observed::Observed, retry::RetryArgs,
        timeouts::WaitTimeouts,
    },
    duration::human,
    run::PARALLELISM,
};

pub(super) fn schema() -> Schema {
    let mut evidence = attribute_map! {
        state: computed_text => "Runner state in the last report of the wrapper; `unreachable` when the wrapper did not respond.",
        level: computed_text => "Health level in the last report. It is at most `polling`, unless `level = \"working\"` is set.",
        jobs: computed_number => "Number of running jobs when the health was verified.",
        jobs_succeeded: computed_number => "Number of jobs that had succeeded since the start of the process when the health was verified.",
        verified_at: computed_text => "Time at which the health was verified (RFC 3339, UTC).",
        problem: computed_text => "Why the last refresh reported the runner manager as not healthy; null when it is healthy.",
    };
    evidence.extend(Observed::attributes());
    object_schema(
        0,
        "Waits at create and at every update until all runner managers of a map are healthy at `level`. Resources that depend on this \
         resource are created after that, and resources that this resource depends on are destroyed after that.",
        attribute_map! {
            id: computed_text => "Unique identifier.",
            runner_managers: required_managers => "The runner managers. Messages identify each one by its key in this map. May be empty.",
            guards: text_map =>
                "The `id` of the `grit_runner_drain` of each runner manager, by key. A new drain resource changes this attribute, so the \
                 health check runs again before old drain resources are destroyed. If it is set, a plan warns about each runner manager \
                 without an entry.",
            level: text => &format!(
                "Required health level: {}. Each level includes the levels before it; the section \"Health levels\" describes \
                 them. Levels above `process` require grit-wrapper on the host.",
                Wanted::choices()
            ),
            min_jobs: number => &format!(
                "Number of jobs that must have ended successfully on each runner manager since the start of its process. Requires \
                 `level = \"working\"`. Default {MIN_JOBS}. The log shows the progress (`0 of {MIN_JOBS} jobs`)."
            ),
            allow_shared_worker_group: boolean => &format!(
                "Accept runner managers of this map that use the same autoscaling group (`plugin_config` of `[runners.autoscaler]`), or that \
                 of a runner manager of another health check. Default `{ALLOW_SHARED_WORKER_GROUP}`: the health check refuses them within its \
                 map, and warns about the others, because a runner manager removes instances that it did not create, with their jobs. Replace \
                 the group together with its manager."
            ),
            expected_version: text =>
                "Version that the runner must report. Requires grit-wrapper on the host, and a `listen_address` in the configuration of \
                 the runner.",
            start_if_stopped: boolean => &format!(
                "Start a runner that has exited, once. Requires grit-wrapper on the host. Default `{START_IF_STOPPED}`. For blue/green \
                 layouts with permanent instances, and for a rollback after drains have begun."
            ),
            start_drains: boolean => &format!(
                "Start the drains of all runner managers that leave the map as soon as all runner managers of the map are healthy, if the same \
                 plan destroys their drain resources. Otherwise each drain starts with the destroy of its drain resource, of which Terraform \
                 runs at most {PARALLELISM} at a time (`-parallelism`). Default `{START_DRAINS}`. The section \"Starting all drains at once\" has the \
                 conditions."
            ),
            stable_for: text => &format!(
                "Time for which each runner manager must stay healthy without interruption. Default `{}`. It must be shorter than both \
                 `timeouts`.",
                human(STABLE_FOR)
            ),
            retry: object(RetryArgs::attributes("until the timeout")) =>
                "Retries of failed connections. A host can refuse connections for minutes while it boots.",
            triggers: text_map => "Arbitrary values. A change of any value repeats the health check.",
            timeouts: object(WaitTimeouts::attributes(&human(HEALTH_TIMEOUT), ": connections, logins, retries and `stable_for`")) =>
                "Timeouts.",
            status: computed_text =>
                "`healthy`, or `unhealthy` if a refresh found a runner manager that is not healthy. In this case, the next apply \
                 repeats the health check.",
            started_drains: computed_as(AttributeType::List(Box::new(AttributeType::String))) =>
                "Keys of the runner managers whose drains the last update started (`start_drains`). A plan shows which drains its apply will \
                 start. Null if there are none.",
            managers: computed_as(AttributeType::AttributeMap(evidence)) =>
                "Verified health of each runner manager, by key. Unknown values are null, never zero.",
        },
    )
}
