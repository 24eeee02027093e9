//! `grit_drain`: shuts runners down, and waits until their processes have exited.

use std::sync::Arc;

use async_trait::async_trait;
use serde::Deserialize;
use tokio::time::Instant;

use super::{at, managers, managers_attribute, progress::Board, timeout, timeouts_attribute};
use crate::{
    call::call,
    client::DrainRequest,
    config::{
        drain::{DRAIN_ATTEMPTS, DRAIN_TIMEOUT},
        enum_attribute::{self, EnumAttribute as _, member},
        manager::{self, InvalidManager, RunnerManagerArgs, RunnerManagers},
        retry::RetryArgs,
        timeouts::InvokeTimeout,
    },
    duration::human,
    explain::{action, health, protocol},
    fleet::{
        self, WithoutPeers,
        drain::{DrainPolicy, Drained, Ended, Mode, NotDrained, OnTimeout, OnUnreachable, StartedBy},
    },
    process::{Configured, Shared},
    resources::{configured, unique_suffix},
    schema::{
        Action, AttributePath, AttributeType, Diagnostics, DiagnosticsExt, Progress, Schema, Value, optional,
        schema,
    },
};

/// The action.
#[derive(Debug)]
pub struct Drain {
    shared: Arc<Shared>,
}

/// The block `config`.
#[derive(Clone, Default, Deserialize)]
pub struct DrainConfig {
    runner_managers: RunnerManagers,
    mode: Value<String>,
    on_timeout: Value<String>,
    reason: Value<String>,
    retry: Value<RetryArgs>,
    timeouts: Value<InvokeTimeout>,
}

/// How the drain of one runner manager ended.
enum Failure {
    Invalid(InvalidManager),
    NotDrained(NotDrained),
}

impl Drain {
    pub fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    async fn drain(
        &self,
        key: &str,
        manager: &RunnerManagerArgs,
        known: &Configured,
        policy: &DrainPolicy,
        board: &Board<'_>,
    ) -> Result<Drained, Failure> {
        let stop = call().stop;
        let client = known.client(key, manager).map_err(Failure::Invalid)?;
        // Until the end of the run it is not a healthy peer of a drain resource.
        let mut in_progress = self.shared.drains.begin(&client.identity());
        let outcome = fleet::drain::run(key, &board.watch(key, client), policy, &WithoutPeers, &stop).await;
        if outcome.as_ref().map_or_else(NotDrained::may_be_requested, |_| true) {
            in_progress.keep_counted();
        }
        if let Ok(Drained::Ended(ended)) = &outcome {
            board.finished(key, &end(ended));
        }
        outcome.map_err(Failure::NotDrained)
    }
}

fn end(ended: &Ended) -> String {
    match ended.started_by {
        StartedBy::Before => "the runner had already exited".to_owned(),
        StartedBy::Joined | StartedBy::Here => format!("the runner exited after {}", human(ended.waited)),
    }
}

impl DrainConfig {
    fn policy(&self, known: &Configured, start: Instant) -> DrainPolicy {
        DrainPolicy {
            mode: member(&self.mode),
            wait: true,
            start,
            timeout: timeout(&self.timeouts, DRAIN_TIMEOUT),
            on_timeout: member(&self.on_timeout),
            on_unreachable: OnUnreachable::Fail,
            request: DrainRequest {
                id: format!("action#{}", unique_suffix()),
                reason: self.reason.as_ref_option().cloned().unwrap_or_default(),
                forceful: false,
                callback: None,
                job_url: std::env::var("CI_JOB_URL").unwrap_or_default(),
            },
            retry: known.retry(self.retry.as_ref_option(), Some(DRAIN_ATTEMPTS)),
        }
    }
}

#[async_trait]
impl Action for Drain {
    type Config = DrainConfig;

    fn schema(&self, _: &mut Diagnostics) -> Option<Schema> {
        let text = |description: &str| optional(AttributeType::String, description);
        Some(schema(
            0,
            "Shuts the runners of a map of runner managers down, and waits until their processes have exited. Instances and \
             `grit_runner_drain` resources stay as they are.",
            [
                ("runner_managers", managers_attribute("to drain")),
                (
                    "mode",
                    text(&format!(
                        "Kind of shutdown: {}. `forceful` aborts the running jobs. It also makes a graceful drain that is in progress forceful.",
                        Mode::choices()
                    )),
                ),
                (
                    "on_timeout",
                    text(&format!(
                        "Action when a runner has not exited in time: {}. `force` aborts the remaining jobs, and waits at most 2 more \
                         minutes.",
                        OnTimeout::choices()
                    )),
                ),
                (
                    "reason",
                    text(
                        "Reason of the drain. It is shown in Terraform's log and in the status of the wrapper.",
                    ),
                ),
                (
                    "retry",
                    optional(
                        AttributeType::AttributeSingle(RetryArgs::attributes(&DRAIN_ATTEMPTS.to_string())),
                        "Retries of failed connections before the shutdown was requested. After that, lost connections are retried \
                         until the timeout.",
                    ),
                ),
                ("timeouts", timeouts_attribute(DRAIN_TIMEOUT)),
            ],
        ))
    }

    async fn validate(&self, diags: &mut Diagnostics, config: DrainConfig) -> Option<()> {
        manager::check_all(&config.runner_managers, &AttributePath::new("runner_managers"), diags);
        enum_attribute::check::<Mode>(&config.mode, AttributePath::new("mode"), diags);
        enum_attribute::check::<OnTimeout>(&config.on_timeout, AttributePath::new("on_timeout"), diags);
        if let Value::Value(retry) = &config.retry {
            retry.check(&AttributePath::new("retry"), diags);
        }
        if let Value::Value(timeouts) = &config.timeouts {
            timeouts.check(&AttributePath::new("timeouts"), diags);
        }
        (!diags.has_errors()).then_some(())
    }

    async fn invoke(&self, diags: &mut Diagnostics, config: DrainConfig, progress: &Progress) -> Option<()> {
        let start = Instant::now();
        let known = &*configured(&self.shared, diags)?;
        let managers = managers(&config.runner_managers);
        let policy = &config.policy(known, start);
        let board = &Board::new(progress, start, managers.keys());
        let drains = fleet::for_each(managers, |key, manager| async move {
            self.drain(&key, &manager, known, policy, board).await
        });
        for (key, outcome) in board.during(drains).await {
            match outcome {
                Ok(Drained::Ended(ended)) => {
                    for warning in action::drained(&key, &ended, policy) {
                        warning.warning(at(&key), diags);
                    }
                }
                Ok(Drained::InProgress(_)) => {
                    protocol::bug("A drain ended before its runner had exited").error(at(&key), diags);
                }
                Ok(Drained::AssumedTerminated { attempts, waited, error }) => {
                    let failure = NotDrained::Connect {
                        attempts,
                        waited,
                        requested: fleet::drain::Requested::No,
                        error,
                    };
                    action::not_drained(&key, &failure).error(at(&key), diags);
                }
                Err(Failure::NotDrained(failure)) => {
                    action::not_drained(&key, &failure).error(at(&key), diags);
                }
                Err(Failure::Invalid(problem)) => {
                    health::invalid_manager(&key, &problem).error(at(&key), diags);
                }
            }
        }
        (!diags.has_errors()).then_some(())
    }
}
