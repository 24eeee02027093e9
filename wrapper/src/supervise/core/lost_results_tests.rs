//! Jobs whose results the child has given up reporting.

use std::time::Duration;

use super::{
    event::Event,
    moment::Moment,
    observation::Observation,
    policy::Policy,
    state::{Phase, State, Supervision},
    stop::StopOutcome,
    table_tests::{child, exited, graceful},
};
use crate::supervise::process::Exit;

/// The times are seconds since SIGQUIT: what probes report then, and the exit. From second 60 on, the result of the first job is lost.
#[test]
fn result_is_lost_if_its_job_is_listed_until_the_child_may_give_up() {
    let (now, policy) = (Moment::now(), Policy::default());
    let at = |second| now + Duration::from_secs(second);
    for (name, probes, exit, outcome) in [
        ("no job waits", &[(1, None)][..], 70, StopOutcome::Clean),
        ("the exit comes before", &[(1, Some(60))], 59, StopOutcome::Clean),
        ("the job is listed until the exit", &[(1, Some(60))], 60, StopOutcome::ResultsLost),
        ("the job is reported before", &[(1, Some(60)), (59, None)], 70, StopOutcome::Clean),
        ("the job leaves the list later", &[(1, Some(60)), (61, None)], 70, StopOutcome::ResultsLost),
        ("another job waits after it", &[(1, Some(60)), (50, Some(90))], 89, StopOutcome::Clean),
        (
            "another job waits after a lost one",
            &[(1, Some(60)), (61, Some(90))],
            62,
            StopOutcome::ResultsLost,
        ),
    ] {
        for is_continued in [false, true] {
            let state = State::Stopping { child: child(now), stop: graceful(), phase: Phase::draining(now) };
            let mut supervision = Supervision { state, ..Supervision::default() };
            for (number, (second, from)) in probes.iter().enumerate() {
                let observed = Observation { results_lost_from: from.map(at), ..Observation::default() };
                let event = Event::Observed(child(now), observed);
                supervision = supervision.with(event, at(*second), &policy).next;
                // The next wrapper has the same child.
                if is_continued && number == 0 {
                    supervision = supervision.continued(at(*second), &policy);
                }
            }
            let ended = supervision.with(exited(Exit::Code(0)), at(exit), &policy).next;
            let found = ended.state.stop().and_then(|stop| stop.outcome);
            assert_eq!(found, Some(outcome), "{name}, continued: {is_continued}");
        }
    }
}
