//! `grit_drain`: shuts runners down, and waits until their processes have exited, unless `wait` is false.

use std::sync::Arc;

use async_trait::async_trait;
use grit_plugin::{
    Block, Problem, Problems, attribute_map, call,
    schema::{Schema, Value, boolean, object, object_schema, text},
};
use serde::Deserialize;
use tokio::time::Instant;

use super::{known_managers, managers_attribute, progress::Board, report};
use crate::{
    config::{
        drain::{CallbackArgs, DRAIN_ATTEMPTS, DRAIN_TIMEOUT, DrainOptions, WAIT, option_attributes},
        enum_attribute::EnumAttribute as _,
        manager::{self, RunnerManagerArgs, RunnerManagers},
        provider_block::Configured,
        retry::RetryArgs,
        timeouts::InvokeTimeout,
    },
    duration::human,
    explain::{
        UNVERIFIED_PEER,
        drain::{self, Subject},
        health,
    },
    fleet::{
        self,
        drain::{DrainPolicy, Drained, Ended, Mode, NotDrained, Requested, StartedBy, Until},
    },
    process::Shared,
    resources::{configured, draining::Draining, unique_suffix},
};

#[derive(Debug)]
pub struct Drain {
    pub shared: Arc<Shared>,
}

/// The block `config`.
#[derive(Clone, Default, Deserialize)]
pub struct DrainConfig {
    runner_managers: RunnerManagers,
    mode: Value<String>,
    on_timeout: Value<String>,
    on_lost_jobs: Value<String>,
    wait: Value<bool>,
    shutdown_callback: Value<CallbackArgs>,
    reason: Value<String>,
    retry: Value<RetryArgs>,
    timeouts: Value<InvokeTimeout>,
}

impl Drain {
    /// Returns warnings about the end of the drain.
    async fn drain(
        &self,
        key: &str,
        manager: &RunnerManagerArgs,
        known: &Configured,
        (policy, options): (&DrainPolicy, DrainOptions<'_>),
        board: &Board,
    ) -> Result<Vec<Problem>, Problem> {
        let client = manager.client(key, known).map_err(|problem| health::invalid_manager(key, &problem))?;
        let draining = Draining { shared: &self.shared, known, name: key, client: &client, options };
        let peer =
            if client.has_protected_address() { String::new() } else { format!(" ({UNVERIFIED_PEER})") };
        match draining.run(&board.watch(key, client.clone()), policy, &call().stop).await {
            Ok(Drained::Ended(ended)) => {
                board.finished(key, &format!("{}{peer}", end(&ended)));
                let warnings = drain::end::warnings(key, &ended, policy, Subject::Action);
                Ok(warnings.into_iter().map(|(_, warning)| warning).collect())
            }
            Ok(Drained::InProgress(started)) => {
                let text = "the shutdown is in progress, and this action does not wait for its end";
                board.finished(key, &format!("{text}{peer}"));
                let no_callback = started.no_callback.iter();
                Ok(no_callback.map(|why| drain::no_callback(key, why, Subject::Action)).collect())
            }
            Ok(Drained::AssumedTerminated { attempts, waited, error }) => {
                let failure = NotDrained::Connect { attempts, waited, requested: Requested::No, error };
                Err(not_drained(key, &failure))
            }
            Err(failure) => Err(not_drained(key, &failure)),
        }
    }
}

fn not_drained(key: &str, failure: &NotDrained) -> Problem {
    drain::not_drained(key, failure, "", None, Subject::Action)
}

fn end(ended: &Ended) -> String {
    match ended.started_by {
        StartedBy::Before => "the runner had already exited".to_owned(),
        StartedBy::Joined | StartedBy::Here => format!("the runner exited after {}", human(ended.waited)),
    }
}

impl DrainConfig {
    /// An action has no guard, and an unreachable host is always an error.
    fn options(&self) -> DrainOptions<'_> {
        DrainOptions {
            mode: &self.mode,
            on_timeout: &self.on_timeout,
            on_unreachable: &Value::Null,
            on_lost_jobs: &self.on_lost_jobs,
            guard: &Value::Null,
            shutdown_callback: &self.shutdown_callback,
            reason: &self.reason,
            retry: &self.retry,
        }
    }

    fn policy(&self, known: &Configured, start: Instant) -> DrainPolicy {
        let id = format!("action#{}", unique_suffix());
        let retry = known.retry(self.retry.as_ref_option(), Some(DRAIN_ATTEMPTS));
        let policy =
            self.options().policy(&id, start, InvokeTimeout::invoke(&self.timeouts, DRAIN_TIMEOUT), retry);
        DrainPolicy { until: Until::of(self.wait.unwrap_or(WAIT)), ..policy }
    }
}

#[async_trait]
impl Block for Drain {
    type Config = DrainConfig;
    type Output = ();

    fn schema(&self) -> Schema {
        let mut schema = object_schema(
            0,
            "Shuts the runners of a map of runner managers down, and waits until their processes have exited. Instances and \
             `grit_runner_drain` resources stay as they are.",
            attribute_map! {
                runner_managers: managers_attribute => "to drain",
                wait: boolean => &format!(
                    "Wait until the runners have exited. `false`: end when each shutdown is in progress; invoke the action again \
                     with `true` to wait for the same drains. Default `{WAIT}`."
                ),
                mode: text => &format!(
                    "Kind of shutdown: {}. `forceful` aborts the running jobs. It also makes a graceful drain that is in progress \
                     forceful.",
                    Mode::choices()
                ),
                retry: object(RetryArgs::attributes(&DRAIN_ATTEMPTS.to_string())) =>
                    "Retries of failed connections before the shutdown was requested. After that, lost connections are retried \
                     until the timeout.",
                timeouts: object(InvokeTimeout::attributes(&human(DRAIN_TIMEOUT))) => "Timeouts.",
            },
        );
        let mut options = option_attributes();
        options.retain(|name, _| {
            ["on_timeout", "on_lost_jobs", "reason", "shutdown_callback"].contains(&name.as_str())
        });
        schema.block.attributes.extend(options);
        schema
    }

    async fn check(&self, config: DrainConfig) -> Result<(), Problems> {
        let mut problems = Problems::default();
        manager::check_map(&config.runner_managers, &mut problems);
        config.options().check(&mut problems);
        InvokeTimeout::check(&config.timeouts, &mut problems);
        problems.or(())
    }

    async fn run(&self, config: DrainConfig) -> Result<(), Problems> {
        let start = Instant::now();
        let managers = known_managers(&config.runner_managers)?;
        let known = &*configured(&self.shared)?;
        let (config, policy) = (&config, &config.policy(known, start));
        let board = &Board::new(call().progress, start, managers.keys());
        let drains = fleet::for_each(managers, |key, manager| async move {
            self.drain(&key, &manager, known, (policy, config.options()), board).await
        });
        report(board.during(drains).await)
    }
}
