//! The metrics, in Prometheus' text format. They are made of the present state, so they cost nothing while nobody asks.
//!
//! What is not known has no sample. A state is a family with one series for each, of which one is 1.

use std::{
    fmt::{Display, Write},
    time::SystemTime,
};

use tokio::time::Instant;

use crate::{
    health::{Health, Level},
    process::Exit,
    supervisor::{End, Phase, State, Supervision},
    wall,
};

const STATES: [&str; 8] =
    ["idle", "starting", "running", "draining", "forcing", "backoff", "stopped", "failed"];

pub(super) fn render(supervision: &Supervision, health: &Health) -> String {
    let mut page = Page(String::new());
    let state = &supervision.state;
    let running = state.child().is_some();

    page.family("build_info", "gauge", "The wrapper's version.");
    page.sample("build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    page.family("runner_state", "gauge", "What the runner does: 1 for the one state that it is in.");
    for name in STATES {
        page.sample("runner_state", &[("state", name)], u8::from(name == state_name(state)));
    }
    page.family("runner_up", "gauge", "Whether the runner's process lives.");
    page.sample("runner_up", &[], u8::from(running));
    let level = if matches!(state, State::Running { .. }) { health.level } else { Level::None };
    page.family("runner_ready", "gauge", "Whether the runner is ready to take jobs.");
    page.sample("runner_ready", &[], u8::from(level >= Level::Ready));
    page.family(
        "runner_health_level",
        "gauge",
        "How healthy the runner is: 0 not, 1 process, 2 ready, 3 polling.",
    );
    page.sample("runner_health_level", &[], level as u8);
    if let Some(child) = state.child() {
        page.moment("runner_start_timestamp_seconds", "When the runner was started.", child.started);
    }
    page.family("runner_restarts_total", "counter", "Runners started because another had ended by itself.");
    page.sample("runner_restarts_total", &[], supervision.restarts);
    if let State::Exited { end, .. } | State::Backoff { end, .. } = state
        && let End::Exited { exit: exit @ (Exit::Code(_) | Exit::Signal(_)), .. } = end
    {
        page.family(
            "runner_last_exit_code",
            "gauge",
            "How the last runner ended: its code, or 128 and the signal.",
        );
        page.sample("runner_last_exit_code", &[], exit.shell_code());
    }
    if running {
        page.family("runner_jobs_scrape_success", "gauge", "Whether the runner tells its jobs.");
        page.sample("runner_jobs_scrape_success", &[], u8::from(health.jobs.is_some()));
    }
    if let Some(jobs) = health.jobs.filter(|_| running) {
        page.family("runner_jobs", "gauge", "Jobs that run now.");
        page.sample("runner_jobs", &[], jobs);
    }
    if let Some(oldest) = health.oldest.as_ref().filter(|_| running) {
        page.family("runner_oldest_job_age_seconds", "gauge", "The age of the job that has run longest.");
        page.sample("runner_oldest_job_age_seconds", &[], oldest.age.as_secs_f64());
    }
    if let Some(stop) = state.stop() {
        page.moment("drain_start_timestamp_seconds", "When the runner was asked to end.", stop.asked);
        if let Some(deadline) = stop.deadline {
            page.moment("drain_deadline_timestamp_seconds", "When the drain becomes forceful.", deadline);
        }
    }
    page.0
}

fn state_name(state: &State) -> &'static str {
    match state {
        State::Idle => "idle",
        State::Starting { .. } => "starting",
        State::Running { .. } => "running",
        State::Stopping { phase: Phase::Holding { .. } | Phase::Draining { .. }, .. } => "draining",
        State::Stopping { .. } => "forcing",
        State::Backoff { .. } => "backoff",
        // The one that somebody should look at.
        State::Exited { end, .. } if end.failure().is_some() => "failed",
        State::Exited { .. } => "stopped",
    }
}

struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _infallible =
            write!(self.0, "# HELP grit_wrapper_{name} {help}\n# TYPE grit_wrapper_{name} {kind}\n");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<_> = labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _infallible = writeln!(self.0, "grit_wrapper_{name}{labels} {value}");
    }

    fn moment(&mut self, name: &str, help: &str, moment: Instant) {
        let since = wall::time(moment).duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.family(name, "gauge", help);
        self.sample(name, &[], format_args!("{}.{:03}", since.as_secs(), since.subsec_millis()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervisor::{ChildInfo, Mode, Stop};

    #[test]
    fn before_during_and_after() {
        let page = |state| {
            let supervision = Supervision { state, ..Supervision::default() };
            let health = Health { level: Level::Polling, jobs: Some(3), ..Health::default() };
            let text = render(&supervision, &health);
            let one =
                text.lines().filter(|line| line.contains("runner_state{") && line.ends_with(" 1")).count();
            assert_eq!(one, 1, "{text}");
            text
        };
        let before = page(State::Idle);
        assert!(before.contains("grit_wrapper_runner_up 0") && !before.contains("grit_wrapper_runner_jobs "));
        let child = ChildInfo { pid: 1, started: Instant::now() };
        let during = page(State::Running { child, reload: None });
        for line in ["runner_up 1", "runner_ready 1", "runner_health_level 3", "runner_jobs 3"] {
            assert!(during.contains(&format!("grit_wrapper_{line}\n")), "{line}: {during}");
        }
        let stop = Some(Stop::new("d", Mode::Graceful));
        let exited = |exit, stop| State::Exited { end: End::Exited { pid: 1, exit, killed: false }, stop };
        let after = page(exited(Exit::Code(0), stop.clone()));
        assert!(after.contains("state=\"stopped\"} 1") && after.contains("drain_start_timestamp_seconds"));
        let failed = page(exited(Exit::Signal(9), stop));
        assert!(failed.contains("state=\"failed\"} 1") && failed.contains("runner_last_exit_code 137\n"));
    }

    /// The rules that `promtool check metrics` holds a page to.
    #[test]
    fn each_family_is_told_once_and_before_its_samples() {
        let child = ChildInfo { pid: 1, started: Instant::now() };
        let supervision =
            Supervision { state: State::Running { child, reload: None }, ..Supervision::default() };
        let text = render(&supervision, &Health { jobs: Some(1), ..Health::default() });
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
                assert_eq!(name, family);
                line.rsplit(' ').next().unwrap().parse::<f64>().unwrap();
            }
        }
    }
}
