//! GitLab does not receive the results of jobs that end during a drain. The runner gives up after some attempts, and exits with code 0.

use std::{process::Command, thread, time::Duration};

use grit_tests::{
    lab::{
        Lab,
        host::Host,
        http,
        queue::{FaultMode, Tally},
    },
    poll,
    rollout::{PATIENCE, is_signal},
    terraform,
};
use serde_json::Value as Json;

/// The delays of GitLab Runner, and two attempts: it gives up 7 s after the end of a job.
const DELAYS: [&str; 2] = ["--report-retry=1s", "--update-interval=3s"];
const TWO_ATTEMPTS: &str = "  job_status_final_update_retry_limit = 2";

#[derive(Clone, Copy, Debug)]
enum Outage {
    Never,
    /// It ends after the first failed attempt.
    Short(FaultMode),
    /// It ends after the exit of the runner.
    Long(FaultMode),
}

/// The status after a drain in which the job of a host ends in this outage.
fn drained(lab: &Lab, host: &Host, outage: Outage) -> Json {
    let jobs = lab.queue().submit_held(1);
    poll::until("the job runs", PATIENCE, || match lab.queue().tally() {
        tally if tally.running == 1 => Ok(()),
        tally => Err(tally),
    });
    let program = terraform::built("grit-wrapper").unwrap();
    let drain = || {
        let words = ["drain", "--wait", "--json", "--address"];
        Command::new(&program).args(words).arg(host.wrapper_address()).output().unwrap()
    };
    let output = thread::scope(|scope| {
        let drain = scope.spawn(drain);
        lab.events().wait_for("the drain", PATIENCE, |event| is_signal(event, "SIGQUIT"));
        if let Outage::Short(mode) | Outage::Long(mode) = outage {
            lab.queue().set_fault_mode(mode);
        }
        lab.queue().release(&jobs);
        if let Outage::Short(_) = outage {
            poll::until("the job waits for its report", PATIENCE, || match job_list(host) {
                list if list.contains(" state=success ") => Ok(()),
                list => Err(list),
            });
            lab.queue().set_fault_mode(FaultMode::Fine);
        }
        drain.join().unwrap()
    });
    let output = String::from_utf8(output.stdout).unwrap();
    serde_json::from_str(output.lines().last().unwrap()).unwrap()
}

fn job_list(host: &Host) -> String {
    let url = format!("{}/debug/jobs/list", host.runner_url());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(http::get(&url)).map_or_else(|error| format!("{error:#}"), |reply| reply.text())
}

#[test]
fn result_that_gitlab_never_received_is_in_the_outcome() {
    for (outage, outcome, tally) in [
        (Outage::Never, "clean", Tally { finished: 1, ..Tally::default() }),
        (Outage::Short(FaultMode::Unavailable), "clean", Tally { finished: 1, ..Tally::default() }),
        (Outage::Long(FaultMode::Unavailable), "results_lost", Tally { lost: 1, ..Tally::default() }),
        // The runner's metrics count no attempt without a response.
        (Outage::Long(FaultMode::Down), "results_lost", Tally { lost: 1, ..Tally::default() }),
    ] {
        let lab = Lab::start().unwrap();
        lab.expect_lost(tally.lost);
        lab.cloud().shape(|_, spec| {
            *spec = std::mem::take(spec).runner(&DELAYS);
            spec.section = TWO_ATTEMPTS.to_owned();
        });
        let (_, host) = lab.cloud().create("m1", "19.4.0").unwrap();
        let status = drained(&lab, &host, outage);
        assert_eq!(status["drain"]["outcome"], outcome, "{outage:?}: {status}");
        assert_eq!(status["exit"]["how"]["code"], 0, "{outage:?}");
        lab.queue().set_fault_mode(FaultMode::Fine);
        poll::until("what GitLab has", Duration::from_secs(30), || match lab.queue().tally() {
            found if found == tally => Ok(()),
            found => Err((outage, found)),
        });
    }
}
