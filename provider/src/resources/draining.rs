//! The drain of one runner manager, as `grit_runner_drain`, `grit_runner_shutdown` and `grit_drain` do it: the check of the peers, the shutdown, the
//! wait, and the warnings about the end of the runner.

use parking_lot::Mutex;
use std::collections::BTreeMap;

use grit_plugin::{
    call,
    schema::{AttributePath, Value},
};
use tokio_util::sync::CancellationToken;

use crate::{
    client::{Wrapper, WrapperClient},
    config::{drain::DrainOptions, gitlab::Unusable, provider_block::Configured},
    duration::human,
    explain::{
        UNVERIFIED_PEER,
        drain::{self, Subject},
        receipt,
    },
    fleet::{
        self, Peer, WithPeers, WithoutPeers,
        drain::{DrainPolicy, Drained, Ended, NotDrained, Outcome, StartedBy, Until},
        receipt::{NoReceipt, Receipt},
    },
    log_key as key,
    process::Shared,
};

/// One runner manager to drain.
pub(crate) struct Draining<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) known: &'a Configured,
    /// The name for messages.
    pub(crate) name: &'a str,
    pub(crate) client: &'a WrapperClient,
    pub(crate) options: DrainOptions<'a>,
}

impl Draining<'_> {
    /// Runs the drain, and asks GitLab for its receipt. A manager whose shutdown was requested does not count as a healthy peer until the end of the run.
    ///
    /// `wrapper`: the client, or one that reports what it reads.
    pub(crate) async fn run(
        self,
        wrapper: &impl Wrapper,
        policy: &DrainPolicy,
        stop: &CancellationToken,
    ) -> Outcome {
        let Self { shared, known, name, client, options } = self;
        let drains = &shared.drains;
        let (mut outcome, in_progress) = match options.guard {
            Value::Value(guard) => {
                let peers = guard.peers.iter().flatten().filter_map(|(key, peer)| {
                    let wrapper = peer.as_ref_option()?.client(key, known).map_err(|error| error.to_string());
                    let identity = wrapper.as_ref().map(WrapperClient::identity).unwrap_or_default();
                    Some((key.clone(), Peer { identity, wrapper }))
                });
                let peer_check = WithPeers {
                    drains,
                    identity: client.identity(),
                    peers: peers.collect::<BTreeMap<_, _>>(),
                    min_healthy: guard.min_healthy(),
                    retry: known.retry(options.retry.as_ref_option(), None),
                    under_way: Mutex::default(),
                };
                let outcome = fleet::drain::run(name, wrapper, policy, &peer_check, stop).await;
                (outcome, peer_check.under_way.into_inner())
            }
            Value::Null | Value::Unknown => {
                let in_progress = drains.begin(&client.identity());
                let outcome = fleet::drain::run(name, wrapper, policy, &WithoutPeers, stop).await;
                (outcome, Some(in_progress))
            }
        };
        if let Some(mut in_progress) = in_progress
            && outcome.as_ref().map_or_else(NotDrained::may_be_requested, |_| true)
        {
            in_progress.keep_counted();
        }
        if !client.has_protected_address()
            && matches!(outcome, Ok(Drained::Ended(_) | Drained::InProgress(_)))
        {
            tracing::warn!({ key::MANAGER } = name, "evidence of the drain was received {}", UNVERIFIED_PEER);
        }
        // A drain that is only started is reported by the call that waits for its end.
        if policy.until != Until::Accepted
            && let Ok(Drained::Ended(ended)) = &mut outcome
            && let Some(gitlab) = known.gitlab()
        {
            ended.receipt = Some(match gitlab {
                Ok(gitlab) => {
                    let deadline = policy.start + policy.timeout;
                    fleet::receipt::ask(name, gitlab, &ended.snapshot, policy.on_lost_jobs, deadline, stop)
                        .await
                }
                Err(Unusable::NoToken) => NoReceipt::NoToken.into(),
                Err(Unusable::Invalid(attribute)) => NoReceipt::Invalid(attribute).into(),
            });
        }
        outcome
    }
}

/// Logs how the runner exited, and warns if it did not exit cleanly. `path`: the attribute of the manager.
pub(super) fn report_end(
    name: &str,
    path: &AttributePath,
    subject: Subject,
    policy: &DrainPolicy,
    ended: &Ended,
) {
    let reason = &ended.snapshot.report.failure_reason;
    let waited = human(ended.waited);
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
    if ended.receipt.as_ref().is_some_and(Receipt::is_empty_list) {
        tracing::info!({ key::MANAGER } = name, "{}", receipt::EMPTY);
    }
    for (attribute, warning) in drain::end::warnings(name, ended, policy, subject) {
        call().warn(warning.at(attribute.map_or_else(|| path.clone(), AttributePath::new)));
    }
}
