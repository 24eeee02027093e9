//! What a destroy does on the host: the check of the peers, the shutdown, the wait, and how the result is told.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use tokio::time::Instant;

use super::{RunnerDrain, state::DrainState};
use crate::{
    assume_terminated,
    call::call,
    client::WrapperClient,
    config::manager::RunnerManagerArgs,
    explain::drain::{self, AssumeSetting},
    fleet::{
        self, Peer, WithPeers, WithoutPeers,
        drain::{
            DrainPolicy, Drained, Ended, Mode, NotDrained, OnUnreachable, Outcome, Requested, StartedBy,
        },
    },
    process::Configured,
    schema::{AttributePath, Diagnostics, Value},
};

impl RunnerDrain {
    /// Drains the runner of a guard. `start` is the moment when the destroy was called: the timeout counts from there.
    pub(super) async fn shut_down(
        &self,
        diags: &mut Diagnostics,
        prior: &DrainState,
        (manager, identity): (&RunnerManagerArgs, String),
        known: &Configured,
        start: Instant,
    ) -> Option<()> {
        let name = prior.name();
        let setting = prior.assume_setting();
        let policy = DrainPolicy {
            on_unreachable: if setting.is_some() {
                OnUnreachable::AssumeTerminated
            } else {
                OnUnreachable::Fail
            },
            ..prior.policy(known, start)
        };
        tracing::info!(manager = name, reason = policy.request.reason, "drain started");
        let id = prior.identifiers().next().unwrap_or_default();
        let client = match known.client(&name, manager) {
            Ok(client) => client,
            Err(invalid) => {
                let (attribute, problem) = (invalid.attribute(), invalid.problem().to_string());
                drain::no_target(prior.id(), attribute, &problem, id)
                    .error(AttributePath::new("runner_manager"), diags);
                return None;
            }
        };
        match self.drain(prior, &name, &client, identity, known, &policy).await {
            Ok(Drained::Ended(ended)) => report_end(diags, &name, prior, &policy, &ended),
            Ok(Drained::AssumedTerminated { attempts, waited, error }) => {
                let told = drain::assumed_terminated(
                    &name,
                    attempts,
                    waited,
                    &error,
                    setting.unwrap_or(AssumeSetting::Attribute),
                );
                told.warning(AttributePath::root(), diags);
            }
            Err(failure) => {
                let path = match &failure {
                    NotDrained::TooFewPeers(_) => AttributePath::new("guard"),
                    _ => AttributePath::root(),
                };
                drain::not_drained(&name, &failure, id, setting).error(path, diags);
                return None;
            }
        }
        Some(())
    }

    async fn drain(
        &self,
        prior: &DrainState,
        name: &str,
        client: &WrapperClient,
        identity: String,
        known: &Configured,
        policy: &DrainPolicy,
    ) -> Outcome {
        let stop = call().stop;
        let drains = &self.shared.drains;
        let (outcome, under_way) = match &prior.guard {
            Value::Value(guard) => {
                let peers = guard.peers.iter().flatten().filter_map(|(key, peer)| {
                    let peer = peer.as_ref_option()?;
                    let identity = peer.identity().unwrap_or_default();
                    let wrapper = known.client(key, peer).map_err(|error| error.to_string());
                    Some((key.clone(), Peer { identity, wrapper }))
                });
                let peer_check = WithPeers {
                    drains,
                    identity,
                    peers: peers.collect::<BTreeMap<_, _>>(),
                    min_healthy: guard.min_healthy(),
                    retry: known.retry(prior.retry.as_ref_option(), None),
                    under_way: Mutex::default(),
                };
                let outcome = fleet::drain::run(name, client, policy, &peer_check, &stop).await;
                (outcome, peer_check.under_way.into_inner().unwrap_or_else(PoisonError::into_inner))
            }
            _ => {
                let under_way = drains.begin(&identity);
                let outcome = fleet::drain::run(name, client, policy, &WithoutPeers, &stop).await;
                (outcome, Some(under_way))
            }
        };
        if let Some(mut under_way) = under_way
            && was_requested(&outcome)
        {
            under_way.keep_counted();
        }
        outcome
    }
}

fn was_requested(outcome: &Outcome) -> bool {
    match outcome {
        Ok(_) => true,
        Err(
            NotDrained::Connect { requested, .. }
            | NotDrained::TimedOut { requested, .. }
            | NotDrained::Interrupted { requested, .. },
        ) => *requested != Requested::No,
        Err(NotDrained::TooFewPeers(_)) => false,
    }
}

/// Logs how the runner ended, and warns of what did not go as it should.
fn report_end(diags: &mut Diagnostics, name: &str, prior: &DrainState, policy: &DrainPolicy, ended: &Ended) {
    let reason = &ended.snapshot.report.failure_reason;
    let waited = crate::duration::human(ended.waited);
    match ended.started_by {
        StartedBy::Before => tracing::info!(manager = name, reason, "runner was already stopped"),
        StartedBy::Joined => tracing::info!(
            manager = name,
            waited,
            forced = ended.forced,
            reason,
            "runner exited; a shutdown was already in progress"
        ),
        StartedBy::Here => {
            tracing::info!(manager = name, waited, forced = ended.forced, reason, "runner exited");
        }
    }
    if ended.forced {
        let told = drain::forced(name, prior.timeout());
        told.warning(AttributePath::root(), diags);
    }
    if let Some(why) = &ended.no_callback {
        let told = drain::no_callback(name, why);
        told.warning(AttributePath::new("shutdown_callback"), diags);
    }
    let by_choice = ended.forced || policy.mode == Mode::Forceful;
    if let Some(told) = drain::bad_end(name, &ended.snapshot, by_choice) {
        told.warning(AttributePath::root(), diags);
    }
}

impl DrainState {
    /// What the variable for one run can name this guard by: its instance, and itself.
    pub(super) fn identifiers(&self) -> impl Iterator<Item = &str> {
        let values = [&self.instance_id, &self.id].into_iter();
        values.filter_map(Value::as_ref_option).map(String::as_str).filter(|id| !id.is_empty())
    }

    /// The user's word that an absent host is terminated, if there is one.
    pub(super) fn assume_setting(&self) -> Option<AssumeSetting> {
        if assume_terminated::names(self.identifiers()) {
            Some(AssumeSetting::Variable)
        } else if self.assumes_terminated() {
            Some(AssumeSetting::Attribute)
        } else {
            None
        }
    }
}
