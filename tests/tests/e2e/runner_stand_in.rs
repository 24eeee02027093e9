//! The stand-ins for the runner and for GitLab behave as GitLab Runner and GitLab do. All other tests rely on them.

mod api;
mod gitlab;
mod job_requests;
mod long_polling;
mod process;

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use grit_tests::{
    lab::{
        Lab,
        event::What,
        queue::{FaultMode, Tally},
    },
    poll,
};
use rustix::process::{Pid, Signal};

use self::process::{LIMIT, Runner, configuration, jobs_running, place};

#[test]
fn sigquit_finishes_jobs_and_exits_0() {
    let lab = Lab::start().unwrap();
    let mut runner = Runner::start(&lab, "a", &["t"], &["--executor-shutdown", "300ms"]);
    let jobs = lab.queue().submit_held(2);
    jobs_running(&lab, 2);
    runner.signal(Signal::QUIT);
    runner.wait_state("graceful-shutdown");
    let late = lab.queue().submit(1, Duration::ZERO);
    runner.signal(Signal::QUIT);
    // GitLab receives the first report of a job before the runner lists it.
    poll::until("both jobs are listed", LIMIT, || match runner.get("/debug/jobs/list") {
        Some((200, list)) if list.lines().count() == 2 => Ok(()),
        other => Err(other),
    });
    lab.queue().release(&jobs);

    let idle = place(&lab, "idle", |event| matches!(event.what, What::RunnerIdle { .. }));
    assert!(runner.child.try_wait().unwrap().is_none(), "zero jobs is not the end");
    assert_eq!(runner.wait().code(), Some(0));
    let exit = place(&lab, "exit", |event| matches!(event.what, What::RunnerExiting { code: 0, .. }));
    assert!(idle < exit);
    assert_eq!(lab.queue().tally(), Tally { queued: late.len(), finished: 2, ..Tally::default() });
}

#[test]
fn sigterm_aborts_jobs_and_each_is_lost_once() {
    let lab = Lab::start().unwrap();
    let mut runner = Runner::start(&lab, "a", &["t"], &[]);
    lab.queue().submit_held(3);
    jobs_running(&lab, 3);
    runner.signal(Signal::TERM);
    assert_eq!(
        runner.wait().code(),
        Some(0),
        "a forceful shutdown that came to its end is a success upstream"
    );
    assert_eq!(lab.queue().tally(), Tally { lost: 3, ..Tally::default() });
    assert_eq!(lab.queue().runner("a").lost, 3);
}

#[test]
fn sigterm_turns_graceful_shutdown_into_forceful() {
    let lab = Lab::start().unwrap();
    let mut runner = Runner::start(&lab, "a", &["t"], &[]);
    lab.queue().submit_held(1);
    jobs_running(&lab, 1);
    runner.signal(Signal::QUIT);
    runner.wait_state("graceful-shutdown");
    runner.signal(Signal::TERM);
    assert_eq!(runner.wait().code(), Some(0));
    assert_eq!(lab.queue().tally().lost, 1);
    let log = std::fs::read_to_string(runner.config.with_file_name("stderr")).unwrap();
    let messages = [
        "Starting graceful shutdown, waiting for builds to finish StopSignal=quit",
        "[handleGracefulShutdown] received stop signal stop-signal=terminated",
        "Starting forceful shutdown               StopSignal=terminated",
    ];
    let places = messages.map(|message| log.find(message));
    assert!(places.is_sorted() && places[0].is_some(), "{log}");
}

#[test]
fn failure_reason_of_aborted_job_depends_on_version() {
    for (version, reason) in [("19.0.0", "runner_system_failure"), ("19.1.0", "runner_interrupted")] {
        let lab = Lab::start().unwrap();
        let runner = Runner::start(&lab, "a", &["t"], &["--emulate-version", version]);
        lab.queue().submit_held(1);
        jobs_running(&lab, 1);
        // The end of the job cannot be reported, so that the runner does not exit.
        lab.queue().set_fault_mode(FaultMode::Down);
        runner.signal(Signal::TERM);
        let wanted = format!("gitlab_runner_failed_jobs_total{{failure_reason=\"{reason}\",");
        poll::until(reason, LIMIT, || {
            let (_, metrics) = runner.get("/metrics").ok_or("no answer")?;
            metrics.contains(&wanted).then_some(()).ok_or("not yet")
        });
    }
}

#[test]
fn second_signal_in_forceful_shutdown_exits_immediately() {
    for second in [Signal::QUIT, Signal::TERM, Signal::INT] {
        let lab = Lab::start().unwrap();
        let mut runner = Runner::start(&lab, "a", &["t"], &["--abort-takes", "1h"]);
        lab.queue().submit_held(1);
        jobs_running(&lab, 1);
        runner.signal(Signal::INT);
        runner.wait_state("forceful-shutdown");
        runner.signal(second);
        assert_eq!(runner.wait().code(), Some(1), "{second:?}");
        poll::until("the job is lost", LIMIT, || match lab.queue().tally() {
            tally if tally.lost == 1 && tally.running == 0 => Ok(()),
            tally => Err(tally),
        });
    }
}

#[test]
fn forceful_shutdown_past_timeout_exits_1() {
    let lab = Lab::start().unwrap();
    let mut runner = Runner::start(&lab, "a", &["t"], &["--abort-takes", "1h"]);
    lab.queue().submit_held(1);
    jobs_running(&lab, 1);
    let text = std::fs::read_to_string(&runner.config).unwrap().replace("timeout = 30", "timeout = 0.2");
    std::fs::write(&runner.config, text).unwrap();
    runner.signal(Signal::HUP);
    poll::until("reload", LIMIT, || {
        let (_, metrics) = runner.get("/metrics").ok_or("no answer")?;
        metrics.contains("gitlab_runner_configuration_loaded_total 2").then_some(()).ok_or("not yet")
    });
    runner.signal(Signal::TERM);
    assert_eq!(runner.wait().code(), Some(1));
}

#[test]
fn signal_before_handlers_kills_runner() {
    use std::os::unix::process::ExitStatusExt;
    let lab = Lab::start().unwrap();
    let mut quit = Runner::start(&lab, "quit", &["t"], &["--handlers-after", "1h"]);
    let mut term = Runner::start(&lab, "term", &["t"], &["--start-delay", "1h"]);
    poll::until("the server is up before the handlers", LIMIT, || quit.get("/metrics").ok_or("no answer"));
    place(&lab, "started", |event| {
        event.subject == "term" && matches!(event.what, What::RunnerStarted { .. })
    });
    quit.signal(Signal::QUIT);
    term.signal(Signal::TERM);
    assert_eq!(quit.wait().code(), Some(2), "as a Go program that prints its stacks");
    assert_eq!(term.wait().signal(), Some(Signal::TERM.as_raw()));
}

#[test]
fn killed_runner_loses_jobs_without_report() {
    let lab = Lab::start().unwrap();
    let mut runner = Runner::start(&lab, "a", &["t"], &["--silent"]);
    let jobs = lab.queue().submit_held(2);
    jobs_running(&lab, 2);
    runner.signal(Signal::KILL);
    runner.wait();
    poll::until("lost", LIMIT, || match lab.queue().tally() {
        tally if tally.lost == 2 => Ok(()),
        tally => Err(tally),
    });
    // The result is final: a later report cannot change it.
    lab.queue().release(&jobs);
    let _again = Runner::start(&lab, "a", &["t"], &["--silent"]);
    let more = lab.queue().submit(1, Duration::ZERO);
    lab.queue().wait_all_ended(LIMIT).unwrap();
    assert_eq!(more, [3]);
    assert_eq!(lab.queue().tally(), Tally { finished: 1, lost: 2, ..Tally::default() });
}

#[test]
fn http_endpoints_depend_on_emulated_version() {
    let lab = Lab::start().unwrap();
    let versions = [("18.0", 404, 404), ("19.1", 200, 404), ("19.2.1", 200, 200)];
    for (version, state, ready) in versions {
        let runner = Runner::start(&lab, version, &["t"], &["--emulate-version", version]);
        poll::until("polling", LIMIT, || match lab.queue().runner(version).polls {
            0 => Err("no poll"),
            _ => Ok(()),
        });
        assert_eq!(runner.get("/debug/process/state").unwrap().0, state, "{version}");
        assert_eq!(runner.get("/health/ready").unwrap().0, ready, "{version}");
        let metrics = poll::until("the answered poll is counted", LIMIT, || {
            let (_, metrics) = runner.get("/metrics").ok_or("no answer".to_owned())?;
            match metrics
                .contains("gitlab_runner_api_request_statuses_total{endpoint=\"request_job\",method=\"post\"")
            {
                true => Ok(metrics),
                false => Err(metrics),
            }
        });
        assert!(metrics.contains("executor_stage=\"idle\"} 0"), "{metrics}");
        assert!(metrics.contains(&format!("version=\"{version}")), "{metrics}");
        assert_eq!(metrics.contains("gitlab_runner_process_state_info{state=\"running\"} 1"), state == 200);
    }
}

#[test]
fn boot_verification_delays_readiness_and_jobs() {
    let lab = Lab::start().unwrap();
    let runner = Runner::start(&lab, "a", &["t"], &["--boot-verify", "1h"]);
    let answer = poll::until("an answer", LIMIT, || runner.get("/health/ready").ok_or("none"));
    assert_eq!(answer, (503, "boot-verify pending\n".to_owned()));
    assert_eq!(runner.get("/debug/process/state").unwrap().1, "starting\n");
    let mut failing = Runner::start(&lab, "b", &["t"], &["--boot-verify-fails"]);
    assert_eq!(failing.wait().code(), Some(1));
    assert_eq!(lab.queue().runner("a").polls + lab.queue().runner("b").polls, 0);
}

#[test]
fn any_stop_signal_during_boot_verification_exits_1() {
    for signal in [Signal::QUIT, Signal::TERM, Signal::INT] {
        let lab = Lab::start().unwrap();
        let mut runner = Runner::start(&lab, "a", &["t"], &["--boot-verify", "1h"]);
        poll::until("an answer", LIMIT, || runner.get("/health/ready").ok_or("none"));
        // The handlers are installed after the start of the server. Before that, the signal would kill the process.
        poll::until("the handler", LIMIT, || runner.handles(signal).then_some(()).ok_or("not installed"));
        runner.signal(signal);
        let exit = place(&lab, "exit", |event| matches!(event.what, What::RunnerExiting { code: 1, .. }));
        assert!(exit > 0);
        assert_eq!((runner.wait().code(), lab.queue().runner("a").polls), (Some(1), 0), "{signal:?}");
    }
}

#[test]
fn configuration_with_zero_concurrency_is_fatal() {
    let lab = Lab::start().unwrap();
    let none = configuration(&lab, &["t"]).replace("concurrent = 4", "concurrent = 0");
    let mut at_start = Runner::configured(&lab, "a", Some(&none), &[]);
    assert_eq!(at_start.wait().code(), Some(1));
    let mut at_reload = Runner::start(&lab, "b", &["t"], &[]);
    at_reload.wait_state("running");
    std::fs::write(&at_reload.config, none).unwrap();
    at_reload.signal(Signal::HUP);
    assert_eq!(at_reload.wait().code(), Some(1));
}

#[test]
fn unhealthy_settings_disable_runner_section() {
    let lab = Lab::start().unwrap();
    lab.queue().refuse_token("t");
    let text = configuration(&lab, &["t"]);
    let five = format!("{text}  unhealthy_requests_limit = 5\n  unhealthy_interval = \"1h\"\n");
    let short = format!("{text}  unhealthy_interval = \"100ms\"\n");
    let _runners = [("five", five), ("short", short)]
        .map(|(name, text)| Runner::configured(&lab, name, Some(&text), &["--silent"]));
    poll::until("more than three refusals, and then more", LIMIT, || {
        match (lab.queue().runner("five").refused, lab.queue().runner("short").refused) {
            (5, short) if short > 6 => Ok(()),
            counts => Err(counts),
        }
    });
    assert_eq!(lab.queue().runner("five").refused, 5, "then the section is left alone");
}

/// The processes of jobs: `sh` with this name, without a parent runner after its exit.
fn job_processes(of: &str) -> Vec<Pid> {
    let numbers = std::fs::read_dir("/proc").unwrap();
    let numbers = numbers.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let is_job = |number: &i32| {
        let environment = std::fs::read(format!("/proc/{number}/environ")).unwrap_or_default();
        let line = std::fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
        environment.windows(of.len()).any(|window| window == of.as_bytes())
            && String::from_utf8_lossy(&line).contains("job-of-runner-stand-in")
    };
    numbers.filter(is_job).filter_map(Pid::from_raw).collect()
}

#[test]
fn forceful_stop_may_leave_job_process_groups() {
    for (kind, code, left) in [("obedient", 0, 0), ("stubborn", 1, 2)] {
        let lab = Lab::start().unwrap();
        // The report of an aborted job must arrive within the shutdown timeout.
        lab.queue().set_latency(Duration::ZERO..=Duration::ZERO);
        let mark = format!("JOBS_OF={}", lab.folder().display());
        let text = configuration(&lab, &["t"]).replace("shutdown_timeout = 30", "shutdown_timeout = 0.3");
        let (name, value) = mark.split_once('=').unwrap();
        let mut runner = Runner::with_env(&lab, "a", Some(&text), &["--job-process", kind], &[(name, value)]);
        let done = lab.queue().submit_held(1);
        jobs_running(&lab, 1);
        poll::until("the job's process", LIMIT, || match job_processes(&mark).len() {
            1 => Ok(()),
            count => Err(count),
        });
        lab.queue().release(&done);
        lab.queue().wait_all_ended(LIMIT).unwrap();
        poll::until("its end", LIMIT, || match job_processes(&mark).len() {
            0 => Ok(()),
            count => Err(count),
        });
        lab.queue().submit_held(2);
        poll::until("two more", LIMIT, || match job_processes(&mark).len() {
            2 => Ok(()),
            count => Err(count),
        });
        runner.signal(Signal::TERM);
        assert_eq!(runner.wait().code(), Some(code), "{kind}");
        let behind = job_processes(&mark);
        for process in &behind {
            let _gone = rustix::process::kill_process_group(*process, Signal::KILL);
        }
        assert_eq!(behind.len(), left, "{kind}");
    }
}

#[test]
fn runner_without_config_or_with_bad_token_stays_running() {
    let lab = Lab::start().unwrap();
    let bare = Runner::start(&lab, "bare", &[], &[]);
    lab.queue().refuse_token("bad");
    let refused = Runner::start(&lab, "refused", &["bad"], &[]);
    bare.wait_state("running");
    poll::until("three refusals", LIMIT, || match lab.queue().runner("refused").refused {
        3 => Ok(()),
        count => Err(count),
    });
    refused.wait_state("running");
    let failures = poll::until("counted", LIMIT, || {
        let (_, metrics) = refused.get("/metrics").unwrap();
        let line =
            metrics.lines().find(|line| line.starts_with("gitlab_runner_worker_health_check_failures_total"));
        line.filter(|line| line.ends_with(" 3")).map(str::to_owned).ok_or(metrics)
    });
    assert!(failures.contains("runner_name=\"bad\""), "{failures}");
    let (_, metrics) = refused.get("/metrics").unwrap();
    assert!(metrics.contains("status=\"403\""), "{metrics}");
    assert_eq!(lab.queue().runner("refused").refused, 3, "then the section is left alone");
}

/// Tokens of one group begin alike.
#[test]
fn sections_with_one_short_token_share_counters_and_health() {
    const GOOD: &str = "glrt-t2_Zzo0YWUxeGood";
    const BAD: &str = "glrt-t2_Zzo0YWUxeBad";
    let lab = Lab::start().unwrap();
    lab.queue().refuse_token(BAD);
    let runner = Runner::start(&lab, "a", &[GOOD, BAD], &[]);
    // GitLab holds the requests of the other section, so that no accepted request comes in between.
    let metrics = poll::until("refusals", LIMIT, || {
        let (_, metrics) = runner.get("/metrics").ok_or_else(String::new)?;
        let refused = lab.queue().runner("a").refused;
        if refused >= 3 { Ok(metrics) } else { Err(metrics) }
    });
    let lines = |name: &str| metrics.lines().filter(|line| line.starts_with(name)).collect::<Vec<_>>();
    let statuses = lines("gitlab_runner_api_request_statuses_total");
    let requests: Vec<_> = statuses.iter().filter(|line| line.contains("request_job")).collect();
    assert!(requests.iter().all(|line| line.contains("runner=\"Zzo0YWUxe\"")), "{requests:?}");
    let count = |status: &str| requests.iter().filter(|line| line.contains(status)).count();
    assert_eq!((count("status=\"204\""), count("status=\"403\"")), (1, 1), "{requests:?}");
    assert_eq!(lines("gitlab_runner_request_concurrency{").len(), 1, "of one of them");
    let failures = lines("gitlab_runner_worker_health_check_failures_total{");
    let good = failures.iter().find(|line| line.contains(&format!("runner_name=\"{GOOD}\""))).unwrap();
    assert!(failures.len() == 2 && good.ends_with(" 0"), "{failures:?}");
    let same_name = configuration(&lab, &[GOOD, BAD])
        .replace(BAD, "glrt-t2_Zzo0YWUxeX")
        .replace("name = \"glrt-t2_Zzo0YWUxeX\"", &format!("name = \"{GOOD}\""));
    let runner = Runner::configured(&lab, "b", Some(&same_name), &[]);
    poll::until("a conflict", LIMIT, || match runner.get("/metrics") {
        Some((500, text)) => Ok(text),
        other => Err(other),
    });
}

#[test]
fn gitlab_outage_delays_drain_without_job_loss() {
    let lab = Lab::start().unwrap();
    let mut runner = Runner::start(&lab, "a", &["t"], &[]);
    let jobs = lab.queue().submit_held(1);
    jobs_running(&lab, 1);
    lab.queue().set_fault_mode(FaultMode::Down);
    runner.signal(Signal::QUIT);
    lab.queue().release(&jobs);
    runner.wait_state("graceful-shutdown");
    assert!(runner.child.try_wait().unwrap().is_none());
    lab.queue().set_fault_mode(FaultMode::Unavailable);
    lab.queue().set_fault_mode(FaultMode::Fine);
    assert_eq!(runner.wait().code(), Some(0));
    assert_eq!(lab.queue().tally(), Tally { finished: 1, ..Tally::default() });
}

#[test]
fn broken_config_is_fatal_at_start_ignored_at_reload() {
    let lab = Lab::start().unwrap();
    let runner = Runner::start(&lab, "a", &["t"], &[]);
    runner.wait_state("running");
    std::fs::write(&runner.config, "concurrent = many").unwrap();
    runner.signal(Signal::HUP);
    poll::until("counted", LIMIT, || {
        let (_, metrics) = runner.get("/metrics").unwrap();
        metrics.contains("gitlab_runner_configuration_loading_error_total 1").then_some(()).ok_or(metrics)
    });
    lab.queue().submit(1, Duration::ZERO);
    assert_eq!(lab.queue().wait_all_ended(LIMIT).unwrap().finished, 1, "the old configuration stays");

    let config = runner.config.to_str().unwrap();
    let status = Command::new(env!("CARGO_BIN_EXE_runner-stand-in"))
        .args(["run", "--config", config])
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(1));
}
