//! The stand-in of the runner treats failures of GitLab as GitLab Runner does.

use std::time::Duration;

use grit_tests::{
    lab::{
        Lab,
        queue::{FaultMode, Tally},
    },
    poll,
};
use rustix::process::Signal;

use super::process::{LIMIT, Runner, configuration, jobs_running};

/// GitLab Runner gives up after `job_status_final_update_retry_limit` attempts, and drains as if the job had been reported.
#[test]
fn job_end_is_dropped_after_last_report_attempt() {
    let limit = "  job_status_final_update_retry_limit = ";
    // Below 17.9 the setting does not exist.
    for (setting, version, wanted) in [("3", "19.2", 3), ("0", "19.2", 10), ("3", "17.8", 10)] {
        let lab = Lab::start().unwrap();
        let text = format!("{}{limit}{setting}\n", configuration(&lab, &["t"]));
        let options = ["--report-retry=1ms", "--update-interval=100ms", "--emulate-version", version];
        let mut runner = Runner::configured(&lab, "a", Some(&text), &options);
        let jobs = lab.queue().submit_held(1);
        jobs_running(&lab, 1);
        lab.queue().set_fault_mode(FaultMode::Unavailable);
        lab.queue().release(&jobs);
        let attempts = |metrics: &str| {
            let endpoint = "gitlab_runner_api_request_statuses_total{endpoint=\"patch_trace\"";
            let failed =
                metrics.lines().find(|line| line.starts_with(endpoint) && line.contains("status=\"503\""))?;
            failed.rsplit(' ').next()?.parse::<u32>().ok()
        };
        poll::until("the job waits for its report", LIMIT, || {
            let (_, metrics) = runner.get("/metrics").ok_or("no answer".to_owned())?;
            let (_, list) = runner.get("/debug/jobs/list").ok_or("no answer".to_owned())?;
            let waits = "state=\"success\",stage=\"cleanup_file_variables\",executor_stage=\"cleanup\"} 1";
            let is_listed =
                list.contains(" state=success stage=cleanup_file_variables executor_stage=cleanup ");
            if is_listed && metrics.contains(waits) { Ok(()) } else { Err(metrics + &list) }
        });
        poll::until("all attempts have failed, and the runner continues", LIMIT, || {
            let (_, metrics) = runner.get("/metrics").ok_or("no answer".to_owned())?;
            let (_, list) = runner.get("/debug/jobs/list").ok_or("no answer".to_owned())?;
            if attempts(&metrics) == Some(wanted) && list.is_empty() { Ok(()) } else { Err(metrics) }
        });
        runner.signal(Signal::QUIT);
        assert_eq!(runner.wait().code(), Some(0), "{setting} {version}");
        poll::until("GitLab has no result of the job", LIMIT, || match lab.queue().tally() {
            tally if tally == (Tally { lost: 1, ..Tally::default() }) => Ok(()),
            tally => Err(tally),
        });
    }
}

#[test]
fn reload_enables_disabled_section_immediately() {
    let lab = Lab::start().unwrap();
    lab.queue().refuse_token("t");
    let runner = Runner::start(&lab, "a", &["t"], &[]);
    let refused = |wanted: usize| {
        poll::until("the section is disabled", LIMIT, || {
            let (_, metrics) = runner.get("/metrics").ok_or("no answer".to_owned())?;
            let counted = format!(
                "gitlab_runner_worker_health_check_failures_total{{runner=\"t\",runner_name=\"t\",system_id=\"a\"}} {wanted}\n"
            );
            if metrics.contains(&counted) { Ok(()) } else { Err(metrics) }
        });
        assert_eq!(lab.queue().runner("a").refused, wanted);
    };
    refused(3);
    runner.signal(Signal::HUP);
    refused(6);
    lab.queue().allow_token("t");
    runner.signal(Signal::HUP);
    lab.queue().submit(1, Duration::ZERO);
    assert_eq!(lab.queue().wait_all_ended(LIMIT).unwrap().finished, 1);
}
