//! The drain of one runner manager with what belongs to it: the check of its peers before, and the receipt after.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::{
    drain::{self, DrainPolicy, Drained, Outcome, Until},
    failure::Requested,
    peers::{Peer, WithPeers, WithoutPeers},
    receipt::{self, NoReceipt},
    retry::Retry,
};
use crate::{
    client::{Client, Wrapper},
    gitlab::Gitlab,
    manager::Manager,
    run::Run,
};

/// One runner manager to drain.
pub(crate) struct Draining<'a> {
    pub(crate) run: &'a Run,
    pub(crate) manager: &'a Manager,
    pub(crate) policy: &'a DrainPolicy,
    pub(crate) guard: Option<Guard>,
    /// Where to ask for the receipt; `None` if it is not configured.
    pub(crate) gitlab: Option<Result<&'a Gitlab, NoReceipt>>,
}

/// The peers of a drain, and how many of them must be healthy.
pub(crate) struct Guard {
    pub(crate) peers: BTreeMap<String, Peer<Client>>,
    pub(crate) min_healthy: usize,
    pub(crate) retry: Retry,
}

impl Draining<'_> {
    /// Runs the drain, and asks GitLab for its receipt. A manager whose shutdown was requested does not count as a healthy peer until the end of
    /// the run.
    ///
    /// `wrapper`: a client of the manager, or one that reports what it reads.
    pub(crate) async fn run(self, wrapper: &impl Wrapper, stop: &CancellationToken) -> Outcome {
        let Self { run, manager, policy, guard, gitlab } = self;
        let Manager { name, identity, .. } = manager;
        let (mut outcome, under_way) = match guard {
            Some(Guard { peers, min_healthy, retry }) => {
                let peer_check = WithPeers {
                    run,
                    manager: identity.clone(),
                    peers,
                    min_healthy,
                    retry,
                    under_way: Mutex::default(),
                };
                let outcome = drain::run(name, wrapper, policy, &peer_check, stop).await;
                (outcome, peer_check.under_way.into_inner())
            }
            None => {
                let under_way = run.begin_drain(identity);
                (drain::run(name, wrapper, policy, &WithoutPeers, stop).await, Some(under_way))
            }
        };
        if let Some(mut under_way) = under_way
            && outcome.as_ref().map_or_else(|failure| failure.requested != Requested::No, |_| true)
        {
            under_way.keep_counted();
        }
        if !manager.has_protected_address()
            && matches!(outcome, Ok(Drained::Ended(_) | Drained::InProgress(_)))
        {
            tracing::warn!(
                manager = name,
                "the wrapper was reached over TCP and could not be verified: another program on the host could have sent its report"
            );
        }
        // A drain that is only started is reported by the call that waits for its end.
        if policy.until != Until::Accepted
            && let Ok(Drained::Ended(ended)) = &mut outcome
            && let Some(gitlab) = gitlab
        {
            let deadline = policy.start + policy.timeout;
            ended.receipt = Some(match gitlab {
                Ok(gitlab) => {
                    receipt::ask(name, gitlab, &ended.snapshot, policy.on_lost_jobs, deadline, stop).await
                }
                Err(none) => none.into(),
            });
        }
        outcome
    }
}
