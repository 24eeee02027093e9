//! Tests of the metrics in all states of a runner, and against Prometheus' rules and the documentation.

use std::{collections::BTreeSet, fs};

use super::*;
use crate::{
    runner::{Oldest, RunnerConfig},
    supervise::{ChildInfo, End, EndedStop, Stop, process::Exit},
};

/// Prefixes of the wrapper's metrics.
pub(super) const PREFIXES: [&str; 2] = ["grit_wrapper_", "process_start_"];

pub(super) fn render(state: State, health: &Health) -> String {
    let evidence = Evidence { child: state.child(), ..health.evidence.clone() };
    let health = Health { evidence, ..health.clone() };
    let supervision = Supervision { state, ..Supervision::default() };
    text(&supervision, &health, &Counters::default())
}

fn child() -> ChildInfo {
    ChildInfo::example(1)
}

pub(super) fn busy() -> Health {
    let mut evidence = Evidence {
        last_poll: Some(Moment::now()),
        jobs: Some(3),
        succeeded: 2,
        oldest: Some(Oldest { started: tokio::time::Instant::now(), stage: String::new() }),
        ..Evidence::default()
    };
    evidence.metrics.version = Some("19.2.0".to_owned());
    evidence.metrics.jobs_failed = 1;
    evidence.set_config(RunnerConfig { concurrent: Some(10), ..RunnerConfig::default() });
    Health { level: Level::Polling, level_max: Level::Polling, evidence, ..Health::default() }
}

pub(super) fn states_of_one_runner() -> Vec<State> {
    let deadline = Some(Moment::now() + Duration::from_secs(60));
    let stop = Stop { deadline, ..Stop::new("d", Mode::Graceful) };
    let end = |exit| End::Exited { pid: 1, exit, killed: false };
    vec![
        State::Idle,
        State::Running { child: child(), reload_at: None },
        State::Stopping { child: child(), stop: stop.clone(), phase: Phase::draining(Moment::now()) },
        State::Exited { end: end(Exit::Code(0)), stop: Some(stop.clone()) },
        State::Exited { end: end(Exit::Signal(9)), stop: Some(stop) },
    ]
}

#[test]
fn metrics_are_valid_in_every_state() {
    let pages: Vec<_> = states_of_one_runner().into_iter().map(|state| render(state, &busy())).collect();
    for page in &pages {
        let one = page.lines().filter(|line| line.contains("runner_state{") && line.ends_with(" 1"));
        assert_eq!(one.count(), 1, "{page}");
    }
    let [before, during, draining, after, failed] = pages.try_into().unwrap();
    assert!(before.contains("grit_wrapper_runner_up 0") && !before.contains("grit_wrapper_runner_jobs "));
    assert!(!before.contains("runner_health_level_max"), "it was not probed yet");
    for line in [
        "runner_up 1",
        "runner_health_level 3",
        "runner_health_level_max 3",
        "runner_jobs_limit 10",
        "runner_ended_jobs_total{result=\"success\"} 2",
        "runner_ended_jobs_total{result=\"failure\"} 1",
        "runner_jobs 3",
    ] {
        assert!(during.contains(&format!("grit_wrapper_{line}\n")), "{line}: {during}");
    }
    assert!(draining.contains("drain_last_progress_timestamp_seconds"));
    assert!(after.contains("state=\"stopped\"} 1") && after.contains("drain_start_timestamp_seconds"));
    assert!(!after.contains("last_progress"));
    assert!(failed.contains("state=\"failed\"} 1"));
}

#[test]
fn drain_progress_is_time_of_latest_event() {
    let progress = |requested: Moment, phase, fewer_jobs: Moment| {
        let child = child();
        let stop = Stop { requested, ..Stop::new("d", Mode::Graceful) };
        let state = State::Stopping { child, stop, phase };
        let known = Evidence { child: Some(child), fewer_jobs: Some(fewer_jobs), ..Evidence::default() };
        let supervision = Supervision { state, ..Supervision::default() };
        status::time(drain_progress(&supervision, &known).unwrap())
    };
    let start = Moment::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let base = progress(at(0), Phase::Killed, at(0));
    let seconds = |time: std::time::SystemTime| time.duration_since(base).unwrap().as_secs_f64().round();
    let draining = Phase::draining(at(20));
    let waiting = Phase::AwaitingGap { not_before: at(30), until: at(90), open: None, quit_sent_at: None };
    assert_eq!(seconds(progress(at(10), waiting, at(0))), 10.0);
    assert_eq!(seconds(progress(at(10), draining.clone(), at(10))), 20.0);
    assert_eq!(seconds(progress(at(10), draining, at(40))), 40.0);
}

#[test]
fn counters_are_exported() {
    let counters = Counters::default();
    let outcome = Some(StopOutcome::JobsAborted);
    counters.count(EndedStop { mode: Mode::Graceful, outcome });
    counters.denied.add();
    counters.attempts[CallbackResult::Failure as usize].add();
    let page = text(&Supervision::default(), &Health::default(), &counters);
    for line in [
        "grit_wrapper_drains_total{mode=\"graceful\",outcome=\"jobs_aborted\"} 1",
        "grit_wrapper_drains_total{mode=\"forceful\",outcome=\"jobs_aborted\"} 0",
        "grit_wrapper_grpc_calls_denied_total 1",
        "grit_wrapper_callback_attempts_total{result=\"failure\"} 1",
    ] {
        assert!(page.contains(&format!("{line}\n")), "{line}: {page}");
    }
}

/// The rules of `promtool check metrics`.
#[test]
fn metric_families_precede_samples_and_are_unique() {
    for text in states_of_one_runner().into_iter().map(|state| render(state, &busy())) {
        let mut family = String::new();
        let mut seen = Vec::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                family = rest.split(' ').next().unwrap().to_owned();
                assert!(!seen.contains(&family), "{family} twice");
                seen.push(family.clone());
                assert!(rest.ends_with('.'), "{rest}");
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert_eq!((name, kind == "counter"), (family.as_str(), name.ends_with("_total")));
            } else {
                let name = line.split(['{', ' ']).next().unwrap();
                assert_eq!(name, family, "{line}");
                line.rsplit(' ').next().unwrap().parse::<f64>().unwrap();
            }
        }
    }
}

#[test]
fn documentation_lists_every_metric() {
    let told: BTreeSet<_> = states_of_one_runner()
        .into_iter()
        .flat_map(|state| {
            let page = render(state, &busy());
            let families = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
            families.map(|rest| rest.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
        })
        .collect();
    let docs =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/wrapper/metrics.md")).unwrap();
    let rows = docs.lines().filter_map(|line| line.strip_prefix("| `"));
    let names = rows.map(|row| row.split(['{', '`']).next().unwrap());
    let listed: Vec<_> =
        names.filter(|name| PREFIXES.iter().any(|prefix| name.starts_with(prefix))).collect();
    assert_eq!(listed.len(), listed.iter().collect::<BTreeSet<_>>().len(), "a row is there twice");
    assert_eq!(listed.into_iter().map(str::to_owned).collect::<BTreeSet<_>>(), told);
}
