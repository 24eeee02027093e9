//! The drain of one runner manager with what belongs to it: the check of its peers before, and the receipt after.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    drain::{self, DrainPolicy, Drained, Outcome, Until},
    failure::Requested,
    peers::{Peer, WithPeers, WithoutPeers},
    receipt::{self, Fate, NoReceipt, Receipt},
    retry::Retry,
};
use crate::{
    client::{Client, RunnerStatus, Snapshot, Wrapper},
    gitlab::{Gitlab, Job},
    manager::Manager,
    run::Run,
};

/// The time limit of the look at the runner after the receipt.
const LOOK_LIMIT: Duration = Duration::from_secs(20);

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
        let name = &self.manager.name;
        let mut outcome =
            until_none_runs(name, wrapper, || self.drain(wrapper, stop), |exited| self.receipt(exited, stop))
                .await;
        if !self.manager.has_protected_address()
            && matches!(outcome, Ok(Drained::Ended(_) | Drained::InProgress(_)))
        {
            tracing::warn!(
                manager = name,
                "the wrapper was reached over TCP and could not be verified: another program on the host could have sent its report"
            );
        }
        if let Ok(Drained::Ended(ended)) = &mut outcome
            && let Some(Err(none)) = self.gitlab
            && self.policy.until != Until::Accepted
        {
            ended.receipt = Some(none.into());
        }
        outcome
    }

    async fn drain(&self, wrapper: &impl Wrapper, stop: &CancellationToken) -> Outcome {
        let Self { run, manager, policy, guard, .. } = self;
        let Manager { name, identity, .. } = manager;
        let (outcome, under_way) = match guard {
            Some(Guard { peers, min_healthy, retry }) => {
                let peer_check = WithPeers {
                    run,
                    manager: identity.clone(),
                    peers,
                    min_healthy: *min_healthy,
                    retry: retry.clone(),
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
        outcome
    }

    /// Asks GitLab, if this can be asked. A drain that is only started is reported by the call that waits for its end.
    async fn receipt(&self, exited: Snapshot, stop: &CancellationToken) -> Option<Receipt> {
        let Self { manager: Manager { name, .. }, policy, gitlab: Some(Ok(gitlab)), .. } = self else {
            return None;
        };
        let deadline = policy.start + policy.timeout;
        let ask = receipt::ask(name, gitlab, &exited, policy.on_lost_jobs, deadline, stop);
        if policy.until == Until::Accepted { None } else { Some(ask.await) }
    }
}

/// Drains, and asks for the receipt. This takes up to a minute, in which the host can start another runner, for example after a reboot, which
/// ends the record of the drain: that runner is drained, too.
///
/// A wrapper that cannot be reached after the receipt has reported the exit before.
async fn until_none_runs<D: Future<Output = Outcome>, A: Future<Output = Option<Receipt>>>(
    name: &str,
    wrapper: &impl Wrapper,
    drain: impl Fn() -> D,
    ask: impl Fn(Snapshot) -> A,
) -> Outcome {
    let mut earlier = Vec::new();
    loop {
        let mut outcome = drain().await;
        let Ok(Drained::Ended(ended)) = &mut outcome else { return outcome };
        let Some(mut receipt) = ask(ended.snapshot.clone()).await else { return outcome };
        receipt.lost.retain(|(job, _)| !earlier.iter().any(|(known, _): &(Job, Fate)| known.id == job.id));
        receipt.lost.splice(0..0, std::mem::take(&mut earlier));
        let now = wrapper.until(Instant::now() + LOOK_LIMIT).read_status().await;
        if now.is_ok_and(|now| now.report.status != RunnerStatus::Stopped) {
            tracing::warn!(
                manager = name,
                "the host has started another runner after the drain; draining it"
            );
            earlier = receipt.lost;
            continue;
        }
        ended.receipt = Some(receipt);
        return outcome;
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicU64, Ordering},
        time::Duration,
    };

    use tokio::time::sleep;

    use super::*;
    use crate::fleet::{
        drain::tests::policy,
        test_wrapper::{ScriptInput, Scripted, ScriptedFault},
    };

    /// The runner exits 5 s after the request. After 30 s, the host is reset, and starts another runner, which exits 10 s after its drain.
    fn reset_after_drain(input: ScriptInput) -> Result<RunnerStatus, ScriptedFault> {
        Ok(match (input.graceful, input.elapsed.as_secs()) {
            (None, _) => RunnerStatus::Running,
            (_, 30..45) => RunnerStatus::Running,
            (Some(since), 0..5) if since.as_secs() < 5 => RunnerStatus::InShutdown,
            (_, 45..55) => RunnerStatus::InShutdown,
            _ => RunnerStatus::Stopped,
        })
    }

    fn job(id: u64) -> Job {
        serde_json::from_value(serde_json::json!({ "id": id })).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn runner_that_starts_while_gitlab_is_asked_is_drained() {
        let (scripted, asked) = (Scripted::new(reset_after_drain), AtomicU64::new(0));
        let (wrapper, policy, stop) = (&scripted, policy(), CancellationToken::new());
        let outcome = until_none_runs(
            "m1",
            &wrapper,
            || drain::run("m1", &wrapper, &policy, &WithoutPeers, &stop),
            async |_| {
                sleep(Duration::from_secs(35)).await;
                let times = asked.fetch_add(1, Ordering::Relaxed) + 1;
                let lost = (1..=times).map(|id| (job(id), Fate::Kept)).collect();
                Some(Receipt { lost, missing: Vec::new() })
            },
        )
        .await;
        let Ok(Drained::Ended(ended)) = outcome else { panic!("{outcome:?}") };
        let lost: Vec<_> = ended.receipt.unwrap().lost.iter().map(|(job, _)| job.id).collect();
        assert_eq!((lost, scripted.requests()), (vec![1, 2], (2, 0)));
        assert!(scripted.elapsed() > Duration::from_secs(55));
    }
}
