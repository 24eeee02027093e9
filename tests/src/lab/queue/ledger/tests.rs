use super::*;

fn process(system_id: &str, pid: u32) -> RunnerProcess {
    RunnerProcess { system_id: system_id.to_owned(), pid }
}

#[test]
fn repeatedly_reported_job_counts_once() {
    let mut ledger = Ledger::default();
    let a = process("a", 1);
    let job = ledger.submit(None);
    ledger.polled(&a);
    assert_eq!(ledger.assign(&a, false), Some(job));
    assert_eq!(ledger.assign(&a, false), None, "a job is not assigned twice");
    ledger.start(job, &a).unwrap();
    ledger.finish(job, &a).unwrap();
    ledger.finish(job, &a).unwrap_err();
    ledger.fail(job, &a).unwrap_err();
    assert!(ledger.vanish(|who| *who == a).is_empty());
    assert_eq!(ledger.tally(), Tally { finished: 1, ..Tally::default() });
    assert_eq!(ledger.runner("a"), RunnerStats { polls: 1, finished: 1, ..RunnerStats::default() });
}

#[test]
fn vanished_process_loses_running_and_assigned_jobs() {
    let mut ledger = Ledger::default();
    let (old, new) = (process("a", 1), process("a", 2));
    let [running, assigned, aborted] = [(); 3].map(|()| ledger.submit(None));
    for _ in 0..3 {
        ledger.assign(&old, false).unwrap();
    }
    ledger.start(running, &old).unwrap();
    ledger.fail(aborted, &old).unwrap();
    assert_eq!(ledger.lost(), [], "the process lives, and GitLab was informed of the aborted job");
    let lost = |id, was_running| LostJob { id, on: old.clone(), was_running, retried_as: None };
    let wanted = [lost(running, true), lost(assigned, false)];
    assert_eq!(ledger.vanish(|who| *who == old), wanted);
    assert_eq!(ledger.lost(), wanted);
    ledger.finish(running, &old).unwrap_err();
    ledger.start(assigned, &old).unwrap_err();
    assert_eq!(ledger.assign(&new, false), None, "no job went back to the queue");
    assert_eq!(ledger.tally(), Tally { lost: 3, ..Tally::default() });
    assert_eq!(ledger.runner("a").lost, 3);
}

#[test]
fn end_of_job_counts_without_first_report() {
    let mut ledger = Ledger::default();
    let a = process("a", 1);
    let job = ledger.submit(None);
    ledger.assign(&a, false).unwrap();
    assert_eq!(ledger.tally(), Tally { assigned: 1, ..Tally::default() });
    ledger.finish(job, &a).unwrap();
    assert_eq!(ledger.tally(), Tally { finished: 1, ..Tally::default() });
}

#[test]
fn unconfirmed_offer_returns_to_queue() {
    let mut ledger = Ledger::default();
    let (old, new) = (process("a", 1), process("a", 2));
    let job = ledger.submit(None);
    ledger.assign(&old, true).unwrap();
    assert_eq!(ledger.vanish(|who| *who == old), []);
    assert_eq!(ledger.assign(&new, true), Some(job));
    ledger.start(job, &old).unwrap_err();
    assert!(ledger.withdraw(job));
    ledger.start(job, &new).unwrap_err();
    assert!(!ledger.withdraw(job));
    ledger.assign(&new, true).unwrap();
    ledger.finish(job, &new).unwrap_err();
    ledger.start(job, &new).unwrap();
    assert_eq!(ledger.tally(), Tally { running: 1, ..Tally::default() });
}

#[test]
fn job_for_one_host_is_not_assigned_to_other_hosts() {
    let mut ledger = Ledger::default();
    let job = ledger.submit(Some("b"));
    let other = ledger.submit(None);
    assert_eq!(ledger.assign(&process("a", 1), false), Some(other));
    assert_eq!(ledger.assign(&process("a", 1), false), None);
    assert_eq!(ledger.assign(&process("b", 1), false), Some(job));
}
