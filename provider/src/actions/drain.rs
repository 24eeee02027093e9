//! `grit_drain`: shuts runners down, and waits until their processes have exited, unless `wait` is false.

use std::sync::Arc;

use async_trait::async_trait;
use grit_plugin::{
    Block, Problems, call,
    schema::{AttributePath, Schema, Value, boolean, object, object_schema, text},
};
use tokio::time::Instant;

use crate::{
    config::{
        drain::{DRAIN_TIMEOUT, DrainOptions, WAIT, check_reason},
        enum_attribute::{EnumAttribute as _, check_member},
        manager::{self, RunnerManagers, check_managers, required_managers},
        object::{Object as _, check_object, object},
        provider_block::Configuration,
        timeouts::InvokeTimeout,
    },
    context::{Context, unique_suffix},
    duration::human,
    explain::{
        self,
        drain::{DrainWords, Subject},
    },
    fleet::{
        self, Failure, Reason, Requested,
        drain::{DrainPolicy, Drained, Ended, Mode, NotDrained, StartedBy, Until},
        draining::Draining,
    },
    manager::{Manager, UNVERIFIED_PEER, at},
    resources::report::{report_end, report_receipt},
};

#[derive(Debug)]
pub struct Drain {
    pub context: Arc<Context>,
}

object! {
    /// The block `config`.
    pub struct DrainConfig {
        runner_managers: RunnerManagers = required_managers =>
            "The runner managers to drain. Messages identify each one by its key in this map.", check_managers;
        mode: Value<String> = text => format!(
            "Kind of shutdown: {}. `forceful` aborts the running jobs; a graceful drain that is in progress becomes forceful.",
            Mode::choices()
        ), check_member::<Mode>;
        reason: Value<String> = text =>
            "Reason for the drain. Terraform's log and the status of the wrapper show the reason.", check_reason;
        wait: Value<bool> = boolean => format!(
            "Wait until the runners have exited. `false`: end when each shutdown is in progress. To wait for the same drains later, \
             invoke the action with `wait = true`. Default `{WAIT}`."
        );
        timeouts: Value<InvokeTimeout> = object(InvokeTimeout::attributes(&human(DRAIN_TIMEOUT))) => "Timeouts.", check_object;
    }
}

impl Drain {
    async fn drain(
        &self,
        manager: &Manager,
        policy: &DrainPolicy,
        configuration: &Configuration,
    ) -> Result<(), Failure<NotDrained>> {
        let (run, gitlab, name) = (&self.context.run, configuration.gitlab(), &manager.name);
        let draining = Draining { run, manager, policy, identifier: "", gitlab };
        let (outcome, receipt) = draining.run(&manager.client(), &call().stop).await;
        report_receipt(name, &at(name), receipt.as_ref());
        let line = match outcome? {
            Drained::Ended(ended) => {
                report_end(name, &at(name), Subject::Action, policy, &ended);
                end(&ended)
            }
            Drained::InProgress(_) => {
                "the shutdown is in progress, and this action does not wait for its end".to_owned()
            }
            Drained::AssumedTerminated { attempts, waited, error, .. } => {
                let reason = Reason::Unreached { attempts, error };
                return Err(Failure { waited, requested: Requested::No, last: None, lost: None, reason });
            }
        };
        let peer =
            if manager.has_protected_address() { String::new() } else { format!(" ({UNVERIFIED_PEER})") };
        call().progress.report(format!("{name}: {line}{peer}"));
        Ok(())
    }
}

fn end(ended: &Ended) -> String {
    match ended.started_by {
        StartedBy::Before => "the runner had already exited".to_owned(),
        StartedBy::Joined | StartedBy::Here => format!("the runner exited after {}", human(ended.waited)),
    }
}

impl DrainConfig {
    /// An unreachable host is always an error.
    fn policy(&self, configuration: &Configuration, start: Instant) -> DrainPolicy {
        let id = format!("action#{}", unique_suffix());
        let timeout = InvokeTimeout::invoke(&self.timeouts, DRAIN_TIMEOUT);
        let options =
            DrainOptions { mode: self.mode.clone(), reason: self.reason.clone(), ..DrainOptions::default() };
        let policy = options.policy(configuration, &id, start, timeout, false);
        DrainPolicy { until: Until::of(self.wait.unwrap_or(WAIT)), ..policy }
    }
}

#[async_trait]
impl Block for Drain {
    type Config = DrainConfig;
    type Output = ();

    fn schema(&self) -> Schema {
        object_schema(
            0,
            "Shuts down the runners of a map of runner managers, and waits until their processes have exited. Instances and \
             `grit_runner_drain` resources do not change.",
            DrainConfig::attributes(),
        )
    }

    async fn check(&self, config: DrainConfig) -> Result<(), Problems> {
        config.check()?;
        self.context.require_addresses(&config.runner_managers)
    }

    async fn run(&self, config: DrainConfig) -> Result<(), Problems> {
        let start = Instant::now();
        // Values that were unknown when the action was checked: an entry that is null must not be left out.
        let mut problems = Problems::default();
        check_managers(&config.runner_managers, &AttributePath::new("runner_managers"), &mut problems);
        problems.or(())?;
        let configuration = &*self.context.configured()?;
        let policy = &config.policy(configuration, start);
        let managers = manager::resolve(&config.runner_managers, configuration);
        let outcomes =
            fleet::over(managers, |manager| async move { self.drain(&manager, policy, configuration).await });
        let mut problems = Problems::default();
        for (key, outcome) in outcomes.await {
            if let Err(failure) = outcome {
                problems.add(explain::failure(&DrainWords::of_action(&key), &failure));
            }
        }
        problems.or(())
    }
}

#[cfg(test)]
mod tests {
    use grit_plugin::Problem;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn null_entry_that_became_known_at_invoke_is_an_error() {
        for (managers, text) in [
            (json!(null), "`runner_managers` is required and must not be null."),
            (json!({ "m1": null }), "`runner_managers[\"m1\"]` is null. Remove the element, or set a value."),
        ] {
            let config = DrainConfig {
                runner_managers: serde_json::from_value(managers).unwrap(),
                ..DrainConfig::default()
            };
            let problems = Drain { context: Arc::default() }.run(config).await.unwrap_err();
            let errors: Vec<_> = problems.iter().map(Problem::detail).collect();
            let [error] = errors.as_slice() else { panic!("{errors:?}") };
            assert!(error.starts_with(text), "{error}");
        }
    }
}
