//! What create and update do: they shut down the managers that are not known to have terminated, and record the evidence.

use std::collections::BTreeMap;

use grit_plugin::{Problems, call, schema::Value};
use time::OffsetDateTime;

use super::{
    RunnerShutdown,
    evidence::Evidence,
    state::{DRAINING, INCOMPLETE, Operation, ShutdownState, TERMINATED},
};
use crate::{
    config::{
        manager::{self, RunnerManagerArgs},
        provider_block::Configuration,
        text::set,
    },
    explain::{
        self,
        drain::{self, DrainWords, Subject},
        shutdown,
    },
    fleet::{
        self, Failure, Outcomes, absence,
        drain::{DrainPolicy, Drained, NotDrained, Until},
        draining::Draining,
        receipt::Receipt,
    },
    manager::at,
    resources::report::{report_end, report_receipt},
};

/// The managers that are not known to have terminated, by key.
type Open<'a> = BTreeMap<&'a String, &'a RunnerManagerArgs>;

/// The end of a drain, whether the kernel protects the address of the wrapper, and the receipt.
type Outcome = Result<(Drained, bool, Option<Receipt>), Failure<NotDrained>>;

impl RunnerShutdown {
    /// Shuts down all open managers of `planned`. A failed update keeps what `prior` and this call have achieved.
    pub(super) async fn shut_down(
        &self,
        prior: Option<&ShutdownState>,
        mut planned: ShutdownState,
        operation: &Operation,
    ) -> Result<ShutdownState, Problems> {
        self.refuse_managers(&planned)?;
        let repeat = prior.is_some_and(|prior| prior.triggers != planned.triggers);
        let (mut evidence, mut open) = (BTreeMap::new(), Open::new());
        for (key, manager) in manager::known(&planned.runner_managers) {
            let recorded = prior.and_then(|prior| prior.evidence_for(&planned, key));
            if let Some(recorded) = recorded {
                evidence.insert(key.clone(), recorded.clone());
            }
            if repeat || !recorded.is_some_and(Evidence::is_terminated) {
                open.insert(key, manager);
            }
        }
        let mut problems = Problems::default();
        if !open.is_empty() {
            let configuration = &*self.context.configured()?;
            let policies = self.policies(&planned, &open, configuration, operation);
            let outcomes = self.run(configuration, &open, &policies).await;
            let failures = record(operation.subject, outcomes, &policies, &mut evidence);
            let terminated = terminated(&evidence);
            let others =
                shutdown::terminated_managers(&terminated, manager::known(&planned.runner_managers).count());
            for (key, failure) in failures {
                let (identifiers, policy) = (identifiers(open[&&key]), &policies[&key]);
                let (contacts, stop) = (&configuration.contacts, &call().stop);
                let offer = absence::offer(&failure, &key, contacts, policy, stop).await;
                let words = DrainWords {
                    manager: &key,
                    subject: operation.subject,
                    on_unreachable: policy.on_unreachable,
                    identifier: identifiers.first().map_or("", String::as_str),
                    names_others: self.context.run.assumed().is_set(),
                    offer: offer.as_ref(),
                    others: &others,
                };
                problems.add(explain::failure(&words, &failure));
            }
        }
        let is_complete = terminated(&evidence).len() == manager::known(&planned.runner_managers).count();
        let status = match (problems.is_empty(), is_complete) {
            (false, _) => INCOMPLETE,
            (true, false) => DRAINING,
            (true, true) => TERMINATED,
        };
        planned.managers =
            Value::Value(evidence.into_iter().map(|(key, it)| (key, Value::Value(it))).collect());
        planned.status = Value::Value(status.to_owned());
        if !problems.is_empty() && prior.is_some() {
            call().checkpoint(&planned);
        }
        problems.or(planned)
    }

    fn policies(
        &self,
        planned: &ShutdownState,
        open: &Open<'_>,
        configuration: &Configuration,
        Operation { id, subject, start }: &Operation,
    ) -> BTreeMap<String, DrainPolicy> {
        let (options, assumed) = (planned.options(), self.context.run.assumed());
        let policy = |manager: &RunnerManagerArgs| {
            let gone = assumed.contains(identifiers(manager).iter().map(String::as_str));
            let policy = options.policy(configuration, id, *start, planned.timeout(*subject), gone);
            DrainPolicy { until: Until::of(planned.waits()), ..policy }
        };
        open.iter().map(|(key, manager)| ((*key).clone(), policy(manager))).collect()
    }

    async fn run(
        &self,
        configuration: &Configuration,
        open: &Open<'_>,
        policies: &BTreeMap<String, DrainPolicy>,
    ) -> Outcomes<Outcome> {
        let managers =
            open.iter().map(|(key, manager)| ((*key).clone(), manager.resolve(key, configuration)));
        let (run, stop) = (&self.context.run, &call().stop);
        fleet::over(managers.collect(), |manager| async move {
            let policy = &policies[&manager.name];
            tracing::info!(manager = manager.name, reason = policy.request.reason, "drain started");
            let gitlab = configuration.gitlab();
            let identifiers = open.get(&manager.name).map(|manager| identifiers(manager)).unwrap_or_default();
            let identifier = identifiers.first().map_or("", String::as_str);
            let draining = Draining { run, manager: &manager, policy, identifier, gitlab };
            let (drained, receipt) = draining.run(&manager.client(), stop).await;
            report_receipt(&manager.name, &at(&manager.name), receipt.as_ref());
            Ok((drained?, manager.has_protected_address(), receipt))
        })
        .await
    }
}

/// The identifiers of a manager for `GRIT_ASSUME_TERMINATED`: its instance's id, and its instance's name.
fn identifiers(manager: &RunnerManagerArgs) -> Vec<String> {
    set(&manager.instance_id).into_iter().chain(set(&manager.instance_name)).collect()
}

fn terminated(evidence: &BTreeMap<String, Evidence>) -> Vec<&str> {
    evidence.iter().filter(|(_, it)| it.is_terminated()).map(|(key, _)| key.as_str()).collect()
}

/// Adds the evidence of `outcomes` to `evidence`, reports warnings, and returns the failures.
fn record(
    subject: Subject,
    outcomes: Outcomes<Outcome>,
    policies: &BTreeMap<String, DrainPolicy>,
    evidence: &mut BTreeMap<String, Evidence>,
) -> Vec<(String, Failure<NotDrained>)> {
    let now = OffsetDateTime::now_utc();
    let mut failures = Vec::new();
    for (key, outcome) in outcomes {
        let policy = &policies[&key];
        let found = match outcome {
            Ok((Drained::Ended(ended), protected, receipt)) => {
                report_end(&key, &at(&key), subject, policy, &ended);
                Evidence::stopped(&ended, receipt.as_ref(), protected, now)
            }
            Ok((Drained::InProgress(drain), protected, _)) => {
                tracing::info!(manager = key, "shutdown in progress; not waiting for the exit");
                Evidence::in_progress(&drain.snapshot, protected)
            }
            Ok((Drained::AssumedTerminated { attempts, waited, error, .. }, ..)) => {
                let setting = policy.on_unreachable;
                let warning = drain::assumed_terminated(&key, attempts, waited, &error, setting);
                call().warn(warning.at(at(&key)));
                Evidence::assumed()
            }
            Err(failure) => {
                // Evidence from before a change of `triggers` is not valid any more.
                evidence.remove(&key);
                failures.push((key, failure));
                continue;
            }
        };
        evidence.insert(key, found);
    }
    failures
}
