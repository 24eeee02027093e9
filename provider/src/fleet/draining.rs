//! The drain of one runner manager with the receipt after it.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{
    absence,
    drain::{self, DrainPolicy, Drained, Outcome, Until},
    receipt::{self, NoReceipt, Receipt},
};
use crate::{
    client::{RunnerStatus, Snapshot, Wrapper},
    gitlab::Gitlab,
    manager::Manager,
    run::Run,
};

/// The time limit of the look at the runner after the receipt, also after an interruption by Terraform, and the pause between two attempts.
const LOOK_LIMIT: Duration = Duration::from_secs(20);
const LOOK_LIMIT_INTERRUPTED: Duration = Duration::from_secs(2);
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// One runner manager to drain.
pub(crate) struct Draining<'a> {
    pub(crate) run: &'a Run,
    pub(crate) manager: &'a Manager,
    pub(crate) policy: &'a DrainPolicy,
    /// The identifier of the instance in `GRIT_ASSUME_TERMINATED`; empty if it has none.
    pub(crate) identifier: &'a str,
    /// Where to ask for the receipt; `None` if it is not configured.
    pub(crate) gitlab: Option<Result<&'a Gitlab, NoReceipt>>,
}

impl Draining<'_> {
    /// Runs the drain, and asks GitLab for its receipt.
    ///
    /// `wrapper`: a client of the manager, or one that reports what it reads.
    ///
    /// The receipt can have lost jobs of an earlier drain, whatever the last drain became.
    pub(crate) async fn run(
        self,
        wrapper: &impl Wrapper,
        stop: &CancellationToken,
    ) -> (Outcome, Option<Receipt>) {
        let name = &self.manager.name;
        let contact = self.manager.contact();
        let waiting = contact.begin();
        self.run.drain_begins();
        let (mut outcome, mut receipt) = until_none_runs(
            name,
            wrapper,
            stop,
            || drain::run(name, wrapper, self.policy, stop),
            |exited| self.receipt(exited, stop),
        )
        .await;
        outcome = absence::proved(outcome, &contact, waiting, self.policy, self.identifier, stop).await;
        if !self.manager.has_protected_address()
            && matches!(outcome, Ok(Drained::Ended(_) | Drained::InProgress(_)))
        {
            tracing::warn!(
                manager = name,
                "the wrapper was reached over TCP and could not be verified: another program on the host could have sent its report"
            );
        }
        if let Ok(Drained::Ended(_)) = &outcome
            && let Some(Err(none)) = self.gitlab
            && self.policy.until != Until::Accepted
        {
            receipt = Some(none.into());
        }
        (outcome, receipt)
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
/// ends the record of the drain: that runner is drained, too. If another client has drained it, it has a receipt of its own.
///
/// A wrapper that cannot be reached for [`LOOK_LIMIT`] after the receipt has reported the exit before.
async fn until_none_runs<D: Future<Output = Outcome>, A: Future<Output = Option<Receipt>>>(
    name: &str,
    wrapper: &impl Wrapper,
    stop: &CancellationToken,
    drain: impl Fn() -> D,
    ask: impl Fn(Snapshot) -> A,
) -> (Outcome, Option<Receipt>) {
    let mut earlier: Option<Receipt> = None;
    loop {
        let outcome = drain().await;
        let Ok(Drained::Ended(ended)) = &outcome else { return (outcome, earlier) };
        let Some(mut receipt) = ask(ended.snapshot.clone()).await else { return (outcome, earlier) };
        if let Some(earlier) = earlier.take() {
            receipt.add_earlier(earlier);
        }
        if look(wrapper, stop).await.is_some_and(|now| has_run_again(&ended.snapshot, &now)) {
            tracing::warn!(
                manager = name,
                "the host has started another runner after the drain; draining it"
            );
            earlier = Some(receipt);
            continue;
        }
        return (outcome, Some(receipt));
    }
}

/// The status after the receipt. The host may just restart the wrapper.
async fn look(wrapper: &impl Wrapper, stop: &CancellationToken) -> Option<Snapshot> {
    let end = Instant::now() + LOOK_LIMIT;
    let read = async {
        loop {
            match wrapper.until(end).read_status().await {
                Ok(now) => return Some(now),
                Err(error) if !error.retryable() || Instant::now() + LOOK_PAUSE >= end => return None,
                Err(_) => sleep(LOOK_PAUSE).await,
            }
        }
    };
    let interrupted = async {
        stop.cancelled().await;
        sleep(LOOK_LIMIT_INTERRUPTED).await;
    };
    tokio::select! {
        biased;
        now = read => now,
        () = interrupted => None,
    }
}

/// Whether a runner was started after this exit. If it has exited, too, its drain is another one.
fn has_run_again(exited: &Snapshot, now: &Snapshot) -> bool {
    let id_of_drain = |snapshot: &Snapshot| snapshot.drain().map(|drain| drain.id.clone());
    now.report.status != RunnerStatus::Stopped || id_of_drain(now) != id_of_drain(exited)
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicU64, Ordering},
        time::Duration,
    };

    use super::*;
    use crate::{
        fleet::{
            drain::{
                NotDrained,
                tests::{joined::drained_by, policy},
            },
            failure::Reason,
            test_wrapper::{ScriptInput, Scripted, ScriptedFault},
        },
        gitlab::Job,
    };
    use receipt::Fate;

    /// The time that a receipt takes, in seconds.
    const RECEIPT: u64 = 30;

    type Response = Result<RunnerStatus, ScriptedFault>;

    /// The runner exits 5 s after the request. The host starts another runner while GitLab is asked, which exits 10 s after its drain. The look
    /// after the receipt finds what `at_look` is in this second.
    fn started_again(input: ScriptInput, at_look: impl Fn(u64) -> Response) -> Response {
        Ok(match (input.graceful, input.elapsed.as_secs()) {
            (None, _) => RunnerStatus::Running,
            (_, 0..5) => RunnerStatus::InShutdown,
            (_, 5..RECEIPT) => RunnerStatus::Stopped,
            (_, second @ RECEIPT..60) => at_look(second)?,
            (_, 60..70) => RunnerStatus::InShutdown,
            _ => RunnerStatus::Stopped,
        })
    }

    fn job(id: u64) -> Job {
        serde_json::from_value(serde_json::json!({ "id": id })).unwrap()
    }

    /// The outcome, and the number of requests. GitLab lists one job more for each question. Terraform interrupts the receipt if `is_interrupted`.
    async fn outcome<S: Into<Snapshot>>(
        script: impl Fn(ScriptInput) -> Result<S, ScriptedFault> + Send + Sync,
        is_interrupted: bool,
    ) -> ((Outcome, Option<Receipt>), usize) {
        let (scripted, asked) = (Scripted::new(script), AtomicU64::new(0));
        let (wrapper, policy, stop) = (&scripted, policy(), CancellationToken::new());
        let outcome = until_none_runs(
            "m1",
            &wrapper,
            &stop,
            || drain::run("m1", &wrapper, &policy, &stop),
            async |_| {
                sleep(Duration::from_secs(RECEIPT)).await;
                if is_interrupted {
                    stop.cancel();
                }
                let times = asked.fetch_add(1, Ordering::Relaxed) + 1;
                let lost = (1..=times).map(|id| (job(id), Fate::Kept)).collect();
                Some(Receipt { lost, missing: Vec::new() })
            },
        )
        .await;
        (outcome, scripted.requests().0)
    }

    fn ids(receipt: Option<Receipt>) -> Vec<u64> {
        receipt.into_iter().flat_map(|receipt| receipt.lost).map(|(job, _)| job.id).collect()
    }

    /// The jobs of the receipt, and the number of requests.
    async fn drained<S: Into<Snapshot>>(
        script: impl Fn(ScriptInput) -> Result<S, ScriptedFault> + Send + Sync,
    ) -> (Vec<u64>, usize) {
        let ((outcome, receipt), requests) = outcome(script, false).await;
        assert!(matches!(outcome, Ok(Drained::Ended(_))), "{outcome:?}");
        (ids(receipt), requests)
    }

    #[tokio::test(start_paused = true)]
    async fn runner_that_starts_while_gitlab_is_asked_is_drained() {
        let runs = |input| started_again(input, |_| Ok(RunnerStatus::Running));
        assert_eq!(drained(runs).await.0, [1, 2]);
    }

    /// The service manager restarts the wrapper when the receipt ends.
    #[tokio::test(start_paused = true)]
    async fn runner_of_a_wrapper_that_is_just_restarted_is_drained() {
        let restarts = |second| {
            if second < RECEIPT + 15 { Err(ScriptedFault::Down) } else { Ok(RunnerStatus::Running) }
        };
        assert_eq!(drained(|input| started_again(input, restarts)).await.0, [1, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn wrapper_that_is_gone_after_the_receipt_has_reported_the_exit() {
        let gone = |input: ScriptInput| match input.elapsed.as_secs() {
            0..6 => started_again(input, |_| Ok(RunnerStatus::Stopped)),
            _ => Err(ScriptedFault::Down),
        };
        assert_eq!(drained(gone).await, (vec![1], 1));
    }

    /// Its drain stays in the state.
    #[tokio::test(start_paused = true)]
    async fn runner_that_runs_after_an_interrupted_receipt_is_not_drained() {
        let runs = |input| started_again(input, |_| Ok(RunnerStatus::Running));
        let (interrupted, receipt) = outcome(runs, true).await.0;
        assert!(
            matches!(&interrupted, Err(failure) if matches!(failure.reason, Reason::Interrupted(_))),
            "{interrupted:?}"
        );
        assert_eq!(ids(receipt), [1]);
        let exited = |input| started_again(input, |_| Ok(RunnerStatus::Stopped));
        assert!(matches!(outcome(exited, true).await.0.0, Ok(Drained::Ended(_))));
    }

    /// The second runner does not exit in time, and its host then does not respond, or the user has confirmed that it is gone.
    #[tokio::test(start_paused = true)]
    async fn jobs_of_the_first_drain_are_named_whatever_the_second_becomes() {
        let runs_on = |input: ScriptInput| {
            let status = started_again(input, |_| Ok(RunnerStatus::Running))?;
            Ok(if input.elapsed.as_secs() < RECEIPT { status } else { RunnerStatus::InShutdown })
        };
        let ((outcome, receipt), _) = outcome(runs_on, false).await;
        assert!(
            matches!(&outcome, Err(failure) if matches!(failure.reason, Reason::Problem(NotDrained::TimedOut { .. }))),
            "{outcome:?}"
        );
        assert_eq!(ids(receipt), [1]);
    }

    /// Between two answers, the host has started another runner, and another client has drained it.
    #[tokio::test(start_paused = true)]
    async fn runner_that_another_client_has_drained_has_a_receipt() {
        let drained_twice = |input: ScriptInput| {
            Ok(match (input.graceful, input.elapsed.as_secs()) {
                (None, _) => RunnerStatus::Running.into(),
                (_, 0..5) => drained_by("first", RunnerStatus::InShutdown),
                (_, 5..20) => drained_by("first", RunnerStatus::Stopped),
                _ => drained_by("second", RunnerStatus::Stopped),
            })
        };
        assert_eq!(drained(drained_twice).await, (vec![1, 2], 1));
    }
}
