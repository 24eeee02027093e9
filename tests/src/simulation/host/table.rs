//! The transition table of the core, as its snapshot has it: each transition of a run must be one of its rows.

use std::{collections::BTreeMap, sync::LazyLock, time::Duration};

use grit_wrapper::supervise::{
    Event, Mode, Phase, Policy, RequestsRead, State, StopId,
    process::{Exit, Signal},
};
use tokio::time::Instant;

const SNAPSHOT: &str = include_str!(
    "../../../../wrapper/src/supervise/core/snapshots/grit_wrapper__supervise__core__table_tests__transition_table_matches_snapshot.snap"
);

/// The next state of each state and event.
static ROWS: LazyLock<BTreeMap<(&str, &str), &str>> = LazyLock::new(|| {
    let rows = SNAPSHOT.lines().filter_map(|line| {
        let (head, rest) = line.split_once(" -> ")?;
        let (state, event) = head.split_at_checked(27)?;
        let next = rest.split([' ', '[']).next()?;
        // The only name with a space.
        let next = if rest.starts_with("awaiting gap") { "awaiting gap" } else { next };
        Some(((state.trim(), event.trim()), next))
    });
    rows.collect()
});

/// Next states that the table does not have, because it has one policy (the wrapper is the parent), a child of 10 s, and known exits.
const OTHERS: [(&str, &str, &str, &str); 9] = [
    ("running", "exited, code 0", "backoff", SYSTEMD_RESTARTS),
    ("running", "exited, code 1", "backoff", SYSTEMD_RESTARTS),
    ("running, reload held", "exited, code 0", "backoff", SYSTEMD_RESTARTS),
    ("running, reload held", "exited, code 1", "backoff", SYSTEMD_RESTARTS),
    ("running, reload due", "exited, code 0", "backoff", SYSTEMD_RESTARTS),
    ("running, reload due", "exited, code 1", "backoff", SYSTEMD_RESTARTS),
    (
        "awaiting gap, too young",
        "force",
        "spacing",
        "an earlier wrapper has perhaps sent SIGQUIT a moment ago",
    ),
    ("awaiting gap, perhaps sent", "force", "spacing", "SIGQUIT was perhaps sent a moment ago"),
    ("stopped as asked", "appeared", "running", "it was a stop of the service manager"),
];

const SYSTEMD_RESTARTS: &str = "the child is of a unit";

/// A transition whose row the table has.
pub(super) struct Row {
    pub(super) name: String,
    /// The next state that the table does not have here.
    pub(super) unexpected: Option<String>,
}

/// The row of a transition; `None` for a combination that the table does not show.
pub(super) fn row(
    before: &State,
    event: &'static str,
    after: &State,
    policy: &Policy,
    is_refused: bool,
    is_open: bool,
) -> Option<Row> {
    let state = variant(before, policy)?;
    let row = *ROWS.get(&(state, event))?;
    let next = after.name();
    // Without a child, the table has the look for one, which leads to the end of the stop.
    let is_decided =
        !is_open && before.child().is_none() && ["stop", "stop, callback", "force", "leave"].contains(&event);
    let expected = if is_decided { "stopped" } else { row };
    if let Some(why) = impossible(state, event) {
        if [LATE_READ, LATE_SIGNAL].contains(&why) {
            return None;
        }
        let unexpected = Some(format!("{state} + {event}, and {why}"));
        return Some(Row { name: format!("impossible row {state} + {event}"), unexpected });
    }
    if is_refused && expected != next {
        // A wrapper that is leaving refuses more.
        return None;
    }
    // The stop of a wrapper that was killed, which no client has requested.
    let is_replaced = next == "starting"
        && event.starts_with("exited")
        && before.stop().is_some_and(|stop| stop.id == StopId::Signal);
    let is_row = expected == next
        || is_replaced
        || is_same_end(expected, next)
        || OTHERS.iter().any(|other| (other.0, other.1, other.2) == (state, event, next))
        || policy.request_gap_timeout.is_zero() && next == "draining";
    let unexpected = (!is_row).then(|| format!("{state} + {event} -> {next}, and the table has {expected}"));
    Some(Row { name: name(state, event), unexpected })
}

/// The end of a child decides between the two, and the table has one end only.
fn is_same_end(one: &str, other: &str) -> bool {
    let is_end = |name| matches!(name, "stopped" | "failed");
    is_end(one) && is_end(other)
}

/// The rows that a run can reach, as [`row`] names them.
pub(in crate::simulation) fn names() -> Vec<String> {
    let possible = ROWS.keys().filter(|(state, event)| impossible(state, event).is_none());
    possible.map(|(state, event)| name(state, event)).collect()
}

fn name(state: &str, event: &str) -> String {
    format!("row {state} + {event}")
}

/// Why `supervise::Task` cannot bring this event in this state. The rest of the table is there because the function is total.
fn impossible(state: &str, event: &str) -> Option<&'static str> {
    let is = |names: &[&str]| names.iter().any(|name| state.starts_with(name));
    let has_child = !is(&["idle", "starting", "backoff", "stopped"]);
    let is_due = state.ends_with(" due") || state.ends_with("past deadline");
    match event {
        "spawned" | "spawn failed" => (!is(&["starting"])).then_some("no child is being started"),
        _ if is(&["starting"]) => Some("the task handles nothing while it starts a child"),
        "boot" => is_due.then_some(TIMER_FIRST),
        "appeared" => has_child.then_some("the exit of the child comes first"),
        "not restarted" => has_child.then_some("the child has not exited"),
        "exited, code 0" | "exited, code 1" => (!has_child).then_some("there is no child"),
        "tick" if is_due => None,
        "tick" => Some("no timer is due"),
        // The state file is written first, which can take until the deadline.
        "SIGQUIT sent" | "SIGQUIT refused" if is(&["draining, past deadline"]) => Some(LATE_SIGNAL),
        // `Task::note_last_reads` takes them at the exit.
        "aborts jobs" | "open requests" | "no open request" | "requests unknown" if is_due => Some(LATE_READ),
        _ if is_due => Some(TIMER_FIRST),
        "SIGQUIT sent" | "SIGQUIT refused" => (!is(&["draining"])).then_some("SIGQUIT was not sent"),
        // `Evidence::note_abort` does not look for what the wrapper's own SIGTERM does.
        "SIGKILL refused" => (!is(&["killed"])).then_some("SIGKILL was not sent"),
        "aborts jobs" => (!has_child || is(&["terminating", "killed"])).then_some(LATE_READ),
        "open requests" | "no open request" | "requests unknown" => {
            (!is(&["awaiting gap"])).then_some(LATE_READ)
        }
        "log read" => has_child.then_some("`Task::spawn` ends the read of an earlier child's log"),
        _ => None,
    }
}

/// Rare, and without an effect in every state: a read that waited in the queue while its state ended.
const LATE_READ: &str = "a read belongs to an earlier state";
const LATE_SIGNAL: &str = "the write of the state file takes until the deadline";
const TIMER_FIRST: &str = "`Task::wait` handles the timer before requests and probes";

/// The state as the table names it.
pub(super) fn variant(state: &State, policy: &Policy) -> Option<&'static str> {
    let now = Instant::now();
    let is_recent = |sent: Instant| now < sent + policy.signal_spacing;
    Some(match state {
        State::Idle => "idle",
        State::Starting => "starting",
        State::Running { reload_at: None, .. } => "running",
        State::Running { reload_at: Some(at), .. } if now >= at.at => "running, reload due",
        State::Running { reload_at: Some(_), .. } => "running, reload held",
        State::Backoff { .. } => "backoff",
        State::Exited { stop: None, .. } => "stopped",
        State::Exited { stop: Some(_), .. } => "stopped as asked",
        State::Stopping { stop, phase, .. } => {
            let is_late = stop.deadline.is_some_and(|deadline| now >= deadline.at);
            match phase {
                Phase::AwaitingGap { quit_sent_at: Some(sent), .. } if is_late && is_recent(sent.at) => {
                    return None;
                }
                Phase::AwaitingGap { .. } if is_late => "awaiting gap, past deadline",
                Phase::AwaitingGap { not_before, .. } if now < not_before.at => "awaiting gap, too young",
                Phase::AwaitingGap { quit_sent_at: Some(sent), until, .. }
                    if now < until.at && is_recent(sent.at) =>
                {
                    "awaiting gap, just sent"
                }
                Phase::AwaitingGap { quit_sent_at: Some(_), until, .. } => {
                    if now >= until.at {
                        return None;
                    }
                    "awaiting gap, perhaps sent"
                }
                Phase::AwaitingGap { until, .. } if now >= until.at => "awaiting gap, due",
                Phase::AwaitingGap { .. } => "awaiting gap",
                Phase::Draining { since, .. } if is_late && is_recent(since.at) => return None,
                Phase::Draining { .. } if is_late => "draining, past deadline",
                Phase::Draining { since, .. } if is_recent(since.at) => "draining since now",
                Phase::Draining { .. } => "draining",
                Phase::Spacing { until } if now >= until.at => "spacing, due",
                Phase::Spacing { .. } => "spacing",
                Phase::Terminating { until } if now >= until.at => "terminating, due",
                Phase::Terminating { .. } => "terminating",
                Phase::Killed => "killed",
            }
        }
    })
}

/// The name of an event in the table; empty for one that it does not have.
pub(super) fn event_row(event: &Event) -> &'static str {
    match event {
        Event::Boot => "boot",
        Event::Start => "start",
        Event::Spawned(_) => "spawned",
        Event::Appeared(_) => "appeared",
        Event::NotRestarted => "not restarted",
        Event::SpawnFailed(_) => "spawn failed",
        Event::Exited(Exit::Code(0)) => "exited, code 0",
        Event::Exited(..) => "exited, code 1",
        Event::Tick => "tick",
        Event::SignalSent(Signal::Drain) => "SIGQUIT sent",
        Event::SignalRefused(Signal::Drain, _) => "SIGQUIT refused",
        Event::SignalRefused(Signal::Kill, _) => "SIGKILL refused",
        Event::Observed(_, observed) if observed.aborts_jobs => "aborts jobs",
        // It has waited for the task.
        Event::JobRequests(_, read) if read.ended.elapsed() > RequestsRead::MAX_AGE => "",
        Event::JobRequests(_, read) => match read.open {
            Some(0) => "no open request",
            Some(_) => "open requests",
            None => "requests unknown",
        },
        Event::Stop(stop) if stop.mode == Mode::Forceful => "force",
        // It has waited in the queue.
        Event::Stop(stop) | Event::Leave(stop)
            if stop.deadline.is_some_and(|deadline| deadline.at <= Instant::now()) =>
        {
            ""
        }
        Event::Stop(stop) if !stop.callbacks.is_empty() => "stop, callback",
        Event::Stop(_) => "stop",
        Event::Cancel(_) => "cancel",
        Event::Reload => "reload",
        Event::CallbackFinished(_) => "called",
        Event::LogRead(_) => "log read",
        Event::Leave(_) => "leave",
        Event::Looked(request) => event_row(request),
        Event::SignalSent(_)
        | Event::SignalRefused(..)
        | Event::Observed(..)
        | Event::RequestsCancelled(..)
        | Event::Saved(_) => "",
    }
}

/// A runner must not get SIGTERM so soon after SIGQUIT: `Policy::signal_spacing`. The state file has milliseconds.
pub(super) const SPACING: Duration = Duration::from_millis(499);
