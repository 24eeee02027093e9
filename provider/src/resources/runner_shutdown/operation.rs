//! What create and update do: they shut down the managers that are not known to have terminated, and record the evidence.

use std::collections::BTreeMap;

use grit_plugin::{
    Problems, call,
    schema::{AttributePath, Value},
};
use time::OffsetDateTime;
use tokio::time::Instant;

use super::{
    RunnerShutdown,
    evidence::Evidence,
    state::{DRAINING, INCOMPLETE, ShutdownState, TERMINATED},
};
use crate::{
    assume_terminated,
    config::{
        drain::DRAIN_ATTEMPTS,
        manager::{self, InvalidManager, RunnerManagerArgs},
        provider_block::Configured,
        text::set,
    },
    explain::{
        drain::{self, AssumeSetting, Subject},
        health, shutdown,
    },
    fleet::{
        self, Outcomes,
        drain::{DrainPolicy, Drained, NotDrained, Until},
    },
    log_key,
    resources::{
        configured,
        draining::{Draining, report_end},
    },
};

/// One manager that is not known to have terminated.
struct Open<'a> {
    manager: &'a RunnerManagerArgs,
    policy: DrainPolicy,
    setting: Option<AssumeSetting>,
}

enum Failure {
    Invalid(InvalidManager),
    NotDrained(NotDrained),
}

impl RunnerShutdown {
    /// Shuts down all open managers of `planned`. If one fails, an update stores what `prior` and this call have achieved.
    pub(super) async fn shut_down(
        &self,
        prior: Option<&ShutdownState>,
        mut planned: ShutdownState,
        (id, subject, start): (String, Subject, Instant),
    ) -> Result<ShutdownState, Problems> {
        self.refuse_managers(&planned)?;
        let repeat = prior.is_some_and(|prior| prior.triggers != planned.triggers);
        let mut evidence = BTreeMap::new();
        let mut open = BTreeMap::new();
        for (key, manager) in planned.known_managers() {
            let recorded = prior.and_then(|prior| prior.evidence_for(&planned, key));
            if let Some(recorded) = recorded {
                evidence.insert(key.clone(), recorded.clone());
            }
            if repeat || !recorded.is_some_and(Evidence::is_terminated) {
                open.insert(key.clone(), manager);
            }
        }
        let outcomes = if open.is_empty() {
            Outcomes::new()
        } else {
            let known = configured(&self.shared)?;
            let open = open
                .into_iter()
                .map(|(key, manager)| (key, Open::new(&planned, &known, manager, (&id, subject, start))));
            self.run(&known, &planned, open.collect()).await
        };
        let failures = record(subject, outcomes, &mut evidence);
        let failed = !failures.is_empty();
        let terminated: Vec<_> =
            evidence.iter().filter(|(_, it)| it.is_terminated()).map(|(key, _)| key.as_str()).collect();
        let total = planned.known_managers().count();
        let others = shutdown::terminated_managers(&terminated, total);
        let status = match (failed, terminated.len() < total) {
            (true, _) => INCOMPLETE,
            (false, true) => DRAINING,
            (false, false) => TERMINATED,
        };
        let problems = explain_failures(failures, &others, subject);
        planned.managers =
            Value::Value(evidence.into_iter().map(|(key, it)| (key, Value::Value(it))).collect());
        planned.status = Value::Value(status.to_owned());
        if failed && prior.is_some() {
            call().checkpoint(&planned);
        }
        problems.or(planned)
    }

    async fn run<'a>(
        &self,
        known: &Configured,
        planned: &ShutdownState,
        open: BTreeMap<String, Open<'a>>,
    ) -> Outcomes<(Open<'a>, Result<Drained, Failure>)> {
        let stop = call().stop;
        fleet::for_each(open, |key, open| {
            let stop = stop.clone();
            async move {
                tracing::info!(
                    { log_key::MANAGER } = key,
                    { log_key::REASON } = open.policy.request.reason,
                    "drain started"
                );
                let options = planned.options();
                let outcome = match open.manager.client(&key, known) {
                    Ok(client) => {
                        let draining =
                            Draining { shared: &self.shared, known, name: &key, client: &client, options };
                        draining.run(&client, &open.policy, &stop).await.map_err(Failure::NotDrained)
                    }
                    Err(invalid) => Err(Failure::Invalid(invalid)),
                };
                (open, outcome)
            }
        })
        .await
    }
}

impl<'a> Open<'a> {
    fn new(
        planned: &ShutdownState,
        known: &Configured,
        manager: &'a RunnerManagerArgs,
        (id, subject, start): (&str, Subject, Instant),
    ) -> Self {
        let options = planned.options();
        let setting = if assume_terminated::names(identifiers(manager).iter().map(String::as_str)) {
            Some(AssumeSetting::Variable)
        } else {
            options.assumes_terminated().then_some(AssumeSetting::Attribute)
        };
        let retry = known.retry(planned.retry.as_ref_option(), Some(DRAIN_ATTEMPTS));
        let mut policy = options.policy(id, start, planned.timeout(subject), retry);
        policy.until = Until::of(planned.waits());
        policy.on_unreachable = AssumeSetting::on_unreachable(setting);
        Self { manager, policy, setting }
    }

    /// What `GRIT_ASSUME_TERMINATED` can name this manager by, in an error.
    fn identifier(&self) -> String {
        identifiers(self.manager).into_iter().next().unwrap_or_default()
    }
}

/// The identifiers of a manager for `GRIT_ASSUME_TERMINATED`: its instance's id, and its instance's name.
fn identifiers(manager: &RunnerManagerArgs) -> Vec<String> {
    set(&manager.instance_id).into_iter().chain(set(&manager.instance_name)).collect()
}

/// Adds the evidence of `outcomes` to `evidence`, reports warnings, and returns the failures.
fn record<'a>(
    subject: Subject,
    outcomes: Outcomes<(Open<'a>, Result<Drained, Failure>)>,
    evidence: &mut BTreeMap<String, Evidence>,
) -> Vec<(String, Open<'a>, Failure)> {
    let now = OffsetDateTime::now_utc();
    let mut failures = Vec::new();
    for (key, (open, outcome)) in outcomes {
        let found = match outcome {
            Ok(Drained::Ended(ended)) => {
                report_end(&key, &manager::at(&key), subject, &open.policy, &ended);
                Evidence::stopped(&ended, open.manager.has_protected_address(), now)
            }
            Ok(Drained::InProgress(drain)) => {
                if let Some(why) = &drain.no_callback {
                    call().warn(
                        drain::no_callback(&key, why, subject).at(AttributePath::new("shutdown_callback")),
                    );
                }
                tracing::info!({ log_key::MANAGER } = key, "shutdown in progress; not waiting for the exit");
                Evidence::in_progress(&drain.snapshot, open.manager.has_protected_address())
            }
            Ok(Drained::AssumedTerminated { attempts, waited, error }) => {
                let setting = open.setting.unwrap_or(AssumeSetting::Attribute);
                call().warn(
                    drain::assumed_terminated(&key, attempts, waited, &error, setting).at(manager::at(&key)),
                );
                Evidence::assumed()
            }
            Err(failure) => {
                // Evidence from before a change of `triggers` is not valid any more.
                evidence.remove(&key);
                failures.push((key, open, failure));
                continue;
            }
        };
        evidence.insert(key, found);
    }
    failures
}

/// One error for each manager that failed. `others`: how many have terminated.
fn explain_failures(failures: Vec<(String, Open<'_>, Failure)>, others: &str, subject: Subject) -> Problems {
    let mut problems = Problems::default();
    for (key, open, failure) in failures {
        let (path, mut explained) = match failure {
            Failure::NotDrained(failure) => {
                let path = match &failure {
                    NotDrained::TooFewPeers { .. } => AttributePath::new("guard"),
                    _ => manager::at(&key),
                };
                (path, drain::not_drained(&key, &failure, &open.identifier(), open.setting, subject))
            }
            Failure::Invalid(invalid) => (manager::at(&key), health::invalid_manager(&key, invalid)),
        };
        if !others.is_empty() {
            explained.happened = format!("{} {others}", explained.happened);
        }
        problems.add(explained.at(path));
    }
    problems
}
