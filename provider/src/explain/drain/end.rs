//! The warnings about a runner that has exited.

use grit_plugin::Problem;

use super::{Subject, bad_end, exit_unseen, forced};
use crate::fleet::drain::{DrainPolicy, Ended, Mode};

pub(crate) fn warnings(manager: &str, ended: &Ended, policy: &DrainPolicy, subject: Subject) -> Vec<Problem> {
    let by_choice = ended.forced || policy.mode == Mode::Forceful;
    ended
        .forced
        .then(|| forced(manager, policy.timeout, &ended.aborted, subject))
        .into_iter()
        .chain(ended.exit_unseen.then(|| exit_unseen(manager, subject)))
        .chain(bad_end(manager, &ended.snapshot, by_choice, subject))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;
    use crate::{
        client::{DrainRequest, RunnerStatus, Snapshot},
        fleet::{
            Retry,
            drain::{OnTimeout, OnUnreachable, StartedBy, Until},
            receipt::OnLostJobs,
        },
    };

    #[test]
    fn resource_and_action_have_the_same_warnings() {
        let mut snapshot = Snapshot::from(RunnerStatus::Stopped);
        snapshot.report.failure_reason = "exit status 1".to_owned();
        let ended = Ended {
            started_by: StartedBy::Here,
            waited: Duration::from_secs(60),
            forced: true,
            aborted: vec![17],
            exit_unseen: true,
            snapshot,
        };
        let policy = DrainPolicy {
            mode: Mode::Graceful,
            until: Until::Exit,
            start: Instant::now(),
            timeout: Duration::from_secs(3600),
            on_timeout: OnTimeout::Force,
            on_unreachable: OnUnreachable::Fail,
            on_lost_jobs: OnLostJobs::Warn,
            request: DrainRequest::default(),
            retry: Retry { attempts: None },
        };
        let titles = |subject| -> Vec<_> {
            let found = warnings("m1", &ended, &policy, subject);
            found.into_iter().map(|warning| warning.summary).collect()
        };
        let of_resource = titles(Subject::Drain);
        assert_eq!(of_resource.len(), 3, "{of_resource:?}");
        for subject in [Subject::ShutdownCreate, Subject::Action] {
            assert_eq!(titles(subject), of_resource);
        }
    }
}
