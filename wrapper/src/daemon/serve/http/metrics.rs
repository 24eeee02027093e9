//! The metrics, created from the current state and the counters for each request.
//!
//! Unknown values have no sample. A state is a family with one series per state, of which one is 1.

use std::time::Duration;

use grit_proto::wrapper_v1 as v1;

use super::exposition::MetricsText;
use crate::{
    daemon::{
        control::Control,
        counters::{CallbackResult, Counters},
        status, version,
    },
    runner::{Evidence, Health, Level},
    supervise::{Mode, Moment, Phase, RunnerState, State, StopOutcome, Supervision},
};

const MODES: [(Mode, &str); 2] = [(Mode::Graceful, "graceful"), (Mode::Forceful, "forceful")];

pub(super) fn page(control: &Control, counters: &Counters) -> String {
    text(&control.supervision(), &control.health(), counters)
}

fn text(supervision: &Supervision, health: &Health, counters: &Counters) -> String {
    let (known, shown) = (health.evidence_in(&supervision.state), status::health(supervision, health));
    let mut page = MetricsText::default();
    about(&mut page, counters);
    runner(&mut page, supervision, &shown, known.last_poll);
    if supervision.state.child().is_some() {
        jobs(&mut page, &shown);
    }
    drain(&mut page, supervision, known);
    drains(&mut page, counters);
    peers(&mut page, counters);
    page.into_text()
}

fn about(page: &mut MetricsText, counters: &Counters) {
    page.gauge("grit_wrapper_build_info", "Version of the wrapper, and commit of its source.");
    let version = ("version", env!("CARGO_PKG_VERSION"));
    let revision = ("revision", version::REVISION);
    page.sample("grit_wrapper_build_info", &[version, revision], 1);
    page.moment(
        "process_start_time_seconds",
        "Start time of the wrapper process, as Unix time.",
        counters.since.0,
    );
}

fn runner(page: &mut MetricsText, supervision: &Supervision, health: &v1::Health, last_poll: Option<Moment>) {
    page.gauge(
        "grit_wrapper_runner_state",
        "State of the runner: 1 for the current state, 0 for the others.",
    );
    for state in RunnerState::ALL {
        let is_current = u8::from(state == supervision.state.public());
        page.sample("grit_wrapper_runner_state", &[("state", state.name())], is_current);
    }
    page.gauge("grit_wrapper_runner_up", "Whether the runner's process is running (1) or not (0).");
    page.sample("grit_wrapper_runner_up", &[], u8::from(supervision.state.child().is_some()));
    let level = health.level();
    page.gauge(
        "grit_wrapper_runner_health_level",
        "Health level of the runner: 0 none, 1 process, 2 ready, 3 polling, 4 working.",
    );
    page.sample("grit_wrapper_runner_health_level", &[], number(level));
    let level_max = health.level_max();
    if level_max > Level::Unspecified {
        page.gauge(
            "grit_wrapper_runner_health_level_max",
            "Highest health level that this runner can reach: 1 process, 4 working.",
        );
        page.sample("grit_wrapper_runner_health_level_max", &[], number(level_max));
    }
    page.counter("grit_wrapper_runner_restarts_total", "Restarts after the runner exited unexpectedly.");
    page.sample("grit_wrapper_runner_restarts_total", &[], supervision.restarts.count);
    if let Some(polled) = last_poll {
        let help = "Time of the last probe that detected an accepted job request.";
        page.moment("grit_wrapper_runner_last_poll_timestamp_seconds", help, status::time(polled));
    }
}

/// `None` is 0.
fn number(level: Level) -> i32 {
    level as i32 - Level::None as i32
}

fn jobs(page: &mut MetricsText, health: &v1::Health) {
    page.gauge(
        "grit_wrapper_runner_jobs_scrape_success",
        "Whether the last read of the runner's jobs succeeded (1) or failed (0). Source: the job list of the runner, otherwise its \
         metrics.",
    );
    page.sample("grit_wrapper_runner_jobs_scrape_success", &[], u8::from(health.jobs.is_some()));
    if let Some(jobs) = health.jobs {
        page.gauge("grit_wrapper_runner_jobs", "Jobs that are running.");
        page.sample("grit_wrapper_runner_jobs", &[], jobs);
    }
    if let Some(limit) = health.concurrent {
        page.gauge("grit_wrapper_runner_jobs_limit", "Maximum number of running jobs (concurrent).");
        page.sample("grit_wrapper_runner_jobs_limit", &[], limit);
    }
    if let (Some(succeeded), Some(failed)) = (health.jobs_succeeded, health.jobs_failed) {
        let name = "grit_wrapper_runner_ended_jobs_total";
        page.counter(name, "Jobs that have ended since the start of the runner process, by result.");
        page.sample(name, &[("result", "success")], succeeded);
        page.sample(name, &[("result", "failure")], failed);
    }
    if let Some(oldest) = &health.oldest_job {
        page.gauge("grit_wrapper_runner_oldest_job_age_seconds", "Age of the oldest running job.");
        let age = oldest.age.and_then(|age| Duration::try_from(age).ok()).unwrap_or_default();
        page.sample("grit_wrapper_runner_oldest_job_age_seconds", &[], age.as_secs_f64());
    }
}

fn drain(page: &mut MetricsText, supervision: &Supervision, known: &Evidence) {
    let Some(stop) = supervision.state.stop() else { return };
    for (name, help, moment) in [
        ("grit_wrapper_drain_start_timestamp_seconds", "Time of the drain request.", Some(stop.requested)),
        (
            "grit_wrapper_drain_last_progress_timestamp_seconds",
            "Time of the last progress of the drain: the request, SIGQUIT to the runner, or a finished job.",
            drain_progress(supervision, known),
        ),
    ] {
        if let Some(moment) = moment {
            page.moment(name, help, status::time(moment));
        }
    }
}

/// While a stop is in progress: its request, its signal, or the end of a job since, whichever was last.
fn drain_progress(supervision: &Supervision, known: &Evidence) -> Option<Moment> {
    let State::Stopping { stop, phase, .. } = &supervision.state else { return None };
    let signal = match *phase {
        Phase::AwaitingGap { quit_sent_at, .. } => quit_sent_at,
        Phase::Draining { since, .. } => Some(since),
        Phase::Spacing { .. } | Phase::Terminating { .. } | Phase::Killed => None,
    };
    [signal, known.fewer_jobs].into_iter().flatten().chain([stop.requested]).max()
}

fn drains(page: &mut MetricsText, counters: &Counters) {
    page.counter(
        "grit_wrapper_drains_total",
        "Completed drains, by the mode that was requested first, and by outcome.",
    );
    for (mode, name) in MODES {
        for outcome in StopOutcome::ALL.map(Some).into_iter().chain([None]) {
            let labels = [("mode", name), ("outcome", outcome.map_or("cancelled", StopOutcome::name))];
            page.sample("grit_wrapper_drains_total", &labels, counters.drains(mode, outcome).get());
        }
    }
}

fn peers(page: &mut MetricsText, counters: &Counters) {
    page.counter(
        "grit_wrapper_grpc_calls_denied_total",
        "gRPC calls denied because the address of the wrapper is read-only.",
    );
    page.sample("grit_wrapper_grpc_calls_denied_total", &[], counters.denied.get());
    page.counter("grit_wrapper_callback_attempts_total", "Attempts to send shutdown callbacks, by result: success, failure (retried), exhausted (the last retry failed).");
    for result in CallbackResult::ALL {
        page.sample(
            "grit_wrapper_callback_attempts_total",
            &[("result", result.name())],
            counters.attempts[result as usize].get(),
        );
    }
}

#[cfg(test)]
mod rules;

#[cfg(test)]
mod tests;
