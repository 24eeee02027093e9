//! The destroy on the host: the check of the peers, the shutdown, the wait, and the report of the result.

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
    explain::drain::{self, AssumeSetting},
    fleet::{
        self, Peer, WithPeers, WithoutPeers,
        drain::{
            DrainPolicy, Drained, Ended, Mode, NotDrained, OnUnreachable, Outcome, Requested, StartedBy,
        },
    },
    log_key as key,
    process::Configured,
    schema::{AttributePath, Diagnostics, Value},
};

impl RunnerDrain {
    /// Drains the runner of a drain resource, within its timeout from `start`.
    pub(super) async fn shut_down(
        &self,
        diags: &mut Diagnostics,
        prior: &DrainState,
        client: &WrapperClient,
        known: &Configured,
        start: Instant,
    ) -> Option<()> {
        let name = prior.name();
        let setting = prior.assume_setting();
        let mut policy = prior.policy(known, start);
        if setting.is_some() {
            policy.on_unreachable = OnUnreachable::AssumeTerminated;
        }
        tracing::info!({ key::MANAGER } = name, { key::REASON } = policy.request.reason, "drain started");
        match self.drain(prior, &name, client, known, &policy).await {
            Ok(Drained::Ended(ended)) => report_end(diags, &name, prior, &policy, &ended),
            Ok(Drained::AssumedTerminated { attempts, waited, error }) => {
                let setting = setting.unwrap_or(AssumeSetting::Attribute);
                drain::assumed_terminated(&name, attempts, waited, &error, setting)
                    .warning(AttributePath::root(), diags);
            }
            Err(failure) => {
                let path = match &failure {
                    NotDrained::TooFewPeers(_) => AttributePath::new("guard"),
                    _ => AttributePath::root(),
                };
                let id = prior.identifiers().next().unwrap_or_default();
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
        known: &Configured,
        policy: &DrainPolicy,
    ) -> Outcome {
        let stop = call().stop;
        let drains = &self.shared.drains;
        let (outcome, in_progress) = match &prior.guard {
            Value::Value(guard) => {
                let peers = guard.peers.iter().flatten().filter_map(|(key, peer)| {
                    let wrapper = known.client(key, peer.as_ref_option()?).map_err(|error| error.to_string());
                    let identity = wrapper.as_ref().map(WrapperClient::identity).unwrap_or_default();
                    Some((key.clone(), Peer { identity, wrapper }))
                });
                let peer_check = WithPeers {
                    drains,
                    identity: client.identity(),
                    peers: peers.collect::<BTreeMap<_, _>>(),
                    min_healthy: guard.min_healthy(),
                    retry: known.retry(prior.retry.as_ref_option(), None),
                    under_way: Mutex::default(),
                };
                let outcome = fleet::drain::run(name, client, policy, &peer_check, &stop).await;
                (outcome, peer_check.under_way.into_inner().unwrap_or_else(PoisonError::into_inner))
            }
            _ => {
                let in_progress = drains.begin(&client.identity());
                let outcome = fleet::drain::run(name, client, policy, &WithoutPeers, &stop).await;
                (outcome, Some(in_progress))
            }
        };
        if let Some(mut in_progress) = in_progress
            && was_requested(&outcome)
        {
            in_progress.keep_counted();
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

/// Logs the exit of the runner, and warns if it was not clean.
fn report_end(diags: &mut Diagnostics, name: &str, prior: &DrainState, policy: &DrainPolicy, ended: &Ended) {
    let reason = &ended.snapshot.report.failure_reason;
    let waited = crate::duration::human(ended.waited);
    match ended.started_by {
        StartedBy::Before => {
            tracing::info!({ key::MANAGER } = name, { key::REASON } = reason, "runner was already stopped");
        }
        StartedBy::Joined | StartedBy::Here => {
            let joined = ended.started_by == StartedBy::Joined;
            tracing::info!(
                { key::MANAGER } = name,
                { key::WAITED } = waited,
                { key::FORCED } = ended.forced,
                { key::JOINED } = joined,
                { key::REASON } = reason,
                "runner exited"
            );
        }
    }
    if ended.forced {
        drain::forced(name, prior.timeout()).warning(AttributePath::root(), diags);
    }
    if let Some(why) = &ended.no_callback {
        drain::no_callback(name, why).warning(AttributePath::new("shutdown_callback"), diags);
    }
    let by_choice = ended.forced || policy.mode == Mode::Forceful;
    if let Some(warning) = drain::bad_end(name, &ended.snapshot, by_choice) {
        warning.warning(AttributePath::root(), diags);
    }
}

impl DrainState {
    /// The ids that `GRIT_ASSUME_TERMINATED` can contain for this drain: of the instance, and its own.
    pub(super) fn identifiers(&self) -> impl Iterator<Item = &str> {
        let values = [&self.instance_id, &self.id].into_iter();
        values.filter_map(Value::as_ref_option).map(String::as_str).filter(|id| !id.is_empty())
    }

    /// The setting that treats an absent host as terminated, if one is set.
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
