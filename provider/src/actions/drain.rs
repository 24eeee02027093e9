//! `grit_drain`: shuts runners down, and waits until their processes have exited, unless `wait` is false.

use std::sync::Arc;

use async_trait::async_trait;
use grit_plugin::{
    Block, Problems, call,
    schema::{Description, Schema, Value, boolean, object, object_schema},
};
use tokio::time::Instant;

use super::{Done, configured, managers_attribute, over, progress::Watched};
use crate::{
    client::Client,
    config::{
        drain::{DRAIN_TIMEOUT, DrainOptions, WAIT},
        enum_attribute::EnumAttribute as _,
        manager::{self, RunnerManagers, check_managers},
        object::{Object as _, check_object, object},
        provider_block::Configuration,
        timeouts::InvokeTimeout,
    },
    context::{Context, unique_suffix},
    duration::human,
    explain::{
        self,
        drain::{self, DrainWords, Subject},
        receipt,
    },
    fleet::{
        Failure, Reason, Requested,
        drain::{DrainPolicy, Drained, Ended, Mode, NotDrained, StartedBy, Until},
        draining::Draining,
    },
    manager::{Manager, UNVERIFIED_PEER, at},
};

#[derive(Debug)]
pub struct Drain {
    pub context: Arc<Context>,
}

object! {
    /// The block `config`. An unreachable host is always an error: this option is null.
    pub struct DrainConfig {
        runner_managers: RunnerManagers = managers_attribute => "to drain", check_managers;
        wait: Value<bool> = boolean => format!(
            "Wait until the runners have exited. `false`: end when each shutdown is in progress. To wait for the same drains later, \
             invoke the action with `wait = true`. Default `{WAIT}`."
        );
        timeouts: Value<InvokeTimeout> = object(InvokeTimeout::attributes(&human(DRAIN_TIMEOUT))) => "Timeouts.", check_object;
        ..options: DrainOptions;
    }
}

impl Drain {
    async fn drain(
        &self,
        manager: &Manager,
        wrapper: &Watched<Client>,
        policy: &DrainPolicy,
        configuration: &Configuration,
    ) -> Result<Done, Failure<NotDrained>> {
        let (run, gitlab, name) = (&self.context.run, configuration.gitlab(), &manager.name);
        let draining = Draining { run, manager, policy, identifier: "", gitlab };
        let (outcome, receipt) = draining.run(wrapper, &call().stop).await;
        for warning in receipt.iter().flat_map(|receipt| receipt::warnings(name, receipt)) {
            call().warn(warning.at(at(name)));
        }
        let (line, warnings) = match outcome? {
            Drained::Ended(ended) => {
                (end(&ended), drain::end::warnings(name, &ended, policy, Subject::Action))
            }
            Drained::InProgress(_) => {
                let line = "the shutdown is in progress, and this action does not wait for its end";
                (line.to_owned(), Vec::new())
            }
            Drained::AssumedTerminated { attempts, waited, error, .. } => {
                let reason = Reason::Unreached { attempts, error };
                return Err(Failure { waited, requested: Requested::No, last: None, lost: None, reason });
            }
        };
        let peer =
            if manager.has_protected_address() { String::new() } else { format!(" ({UNVERIFIED_PEER})") };
        Ok(Done { line: format!("{line}{peer}"), warnings })
    }
}

fn end(ended: &Ended) -> String {
    match ended.started_by {
        StartedBy::Before => "the runner had already exited".to_owned(),
        StartedBy::Joined | StartedBy::Here => format!("the runner exited after {}", human(ended.waited)),
    }
}

impl DrainConfig {
    fn policy(&self, configuration: &Configuration, start: Instant) -> DrainPolicy {
        let id = format!("action#{}", unique_suffix());
        let timeout = InvokeTimeout::invoke(&self.timeouts, DRAIN_TIMEOUT);
        let policy = self.options.policy(configuration, &id, start, timeout, false);
        DrainPolicy { until: Until::of(self.wait.unwrap_or(WAIT)), ..policy }
    }
}

#[async_trait]
impl Block for Drain {
    type Config = DrainConfig;
    type Output = ();

    fn schema(&self) -> Schema {
        let mut attributes = DrainConfig::attributes();
        attributes.retain(|name, _| name != "on_unreachable");
        let mut describe = |name: &str, text: &str| {
            if let Some(attribute) = attributes.get_mut(name) {
                attribute.description = Description::markdown(text);
            }
        };
        describe(
            "mode",
            &format!(
                "Kind of shutdown: {}. `forceful` aborts the running jobs; a graceful drain that is in progress becomes forceful.",
                Mode::choices()
            ),
        );
        describe(
            "retry",
            "Retries of failed connections before the shutdown is requested. After the request, lost connections are \
             retried until the timeout.",
        );
        object_schema(
            0,
            "Shuts down the runners of a map of runner managers, and waits until their processes have exited. Instances and \
             `grit_runner_drain` resources do not change.",
            attributes,
        )
    }

    async fn check(&self, config: DrainConfig) -> Result<(), Problems> {
        config.check()
    }

    async fn run(&self, config: DrainConfig) -> Result<(), Problems> {
        let start = Instant::now();
        let configuration = &*configured(&self.context, &config.runner_managers)?;
        let policy = &config.policy(configuration, start);
        let operation = |manager: Manager, wrapper: Watched<Client>| async move {
            self.drain(&manager, &wrapper, policy, configuration).await
        };
        over(manager::resolve(&config.runner_managers, configuration), start, operation, |name, failure| {
            explain::failure(&DrainWords::of_action(name), failure)
        })
        .await
    }
}
