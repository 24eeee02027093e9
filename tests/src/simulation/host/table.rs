//! The transition table of the core, as its snapshot has it: each transition of a run must be one of its rows.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
    time::Duration,
};

use grit_wrapper::supervise::{
    Event, Mode, Phase, Policy, Reload, State,
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

/// Next states that the table does not have, because it has one policy (restart on failure), a child of 10 s, and known exits.
const OTHERS: [(&str, &str, &str, &str); 16] = [
    ("running", "exited, code 0", "backoff", "restart always"),
    ("running", "exited, code 1", "failed", "restart never"),
    ("running, reload held", "exited, code 0", "backoff", "restart always"),
    ("running, reload held", "exited, code 1", "failed", "restart never"),
    ("running, reload due", "exited, code 0", "backoff", "restart always"),
    ("running, reload due", "exited, code 1", "failed", "restart never"),
    ("starting", "spawn failed", "failed", "restart never"),
    ("running", "stop, handler", "holding", "the child is too young"),
    ("running", "tick, handler", "running", "the child is too young"),
    ("running, reload held", "tick, handler", "running", "the child is too young"),
    ("running, reload held", "stop, handler", "holding", "the child is too young"),
    ("holding", "tick, handler", "holding", "the child is too young"),
    ("holding, sent", "tick, handler", "holding", "the child is too young"),
    ("holding, just sent", "tick, handler", "holding", "the child is too young"),
    ("holding, past deadline", "tick, handler", "spacing", "SIGQUIT was sent a moment ago"),
    ("backoff", "stop", "stopped", "the child exited with code 0"),
];

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
) -> Option<Row> {
    let state = variant(before, policy)?;
    let expected = *ROWS.get(&(state, event))?;
    let next = after.name();
    if is_refused && expected != next {
        // A wrapper that is leaving refuses more.
        return None;
    }
    let name = format!("row {state} + {event} -> {next}");
    let is_row = expected == next
        || is_same_end(expected, next)
        || OTHERS.iter().any(|other| (other.0, other.1, other.2) == (state, event, next))
        || policy.request_gap_timeout.is_zero() && next == "draining";
    // The table has these events without a handler only.
    let is_row = is_row
        || matches!(event, "leave" | "stop, callback")
            && state.starts_with("running")
            && next == "awaiting gap";
    let unexpected = (!is_row).then(|| format!("{state} + {event} -> {next}, and the table has {expected}"));
    Some(Row { name, unexpected })
}

/// The end of a child decides between the two, and the table has one end only.
fn is_same_end(one: &str, other: &str) -> bool {
    let is_end = |name| matches!(name, "stopped" | "failed");
    is_end(one) && is_end(other)
}

/// The rows that no run has reached.
pub(in crate::simulation) fn missing(counts: &BTreeMap<String, u64>) -> Vec<String> {
    let reached: BTreeSet<_> = counts
        .keys()
        .filter_map(|name| name.strip_prefix("row ")?.split_once(" -> "))
        .map(|(head, _)| head.to_owned())
        .collect();
    let all = ROWS
        .iter()
        .filter(|((state, event), _)| is_possible(state, event))
        .map(|((state, event), next)| (format!("{state} + {event}"), next));
    all.filter(|(head, _)| !reached.contains(head)).map(|(head, next)| format!("{head} -> {next}")).collect()
}

pub(in crate::simulation) fn rows() -> usize {
    ROWS.keys().filter(|(state, event)| is_possible(state, event)).count()
}

/// Whether `supervise::Task` can bring this event in this state.
fn is_possible(state: &str, event: &str) -> bool {
    let is = |names: &[&str]| names.iter().any(|name| state.starts_with(name));
    let has_child = !is(&["idle", "starting", "backoff", "stopped"]);
    // The timer comes before requests, and only the exit before the timer.
    let is_due = state.ends_with(" due") || state.ends_with("past deadline");
    match event {
        "spawned" | "spawn failed" => is(&["starting"]),
        // It handles nothing while it starts a child.
        _ if is(&["starting"]) => false,
        "exited, code 0" | "exited, code 1" => has_child,
        "tick" | "tick, handler" if is_due => event == "tick" || is(&["running", "holding"]),
        _ if is_due => false,
        "SIGQUIT sent" | "SIGQUIT refused" => is(&["draining"]),
        "aborts jobs" => has_child,
        "open requests" | "no open request" | "requests unknown" => is(&["awaiting gap"]),
        "tick, handler" | "stop, handler" | "reload, handler" => is(&["running", "holding"]),
        // A look for the handler.
        "tick" => is(&["running, reload held", "holding"]),
        // Nothing is read, or sent, before the first end of a child.
        "log read" | "called" => !is(&["idle"]),
        "cancel" | "start" | "force" | "stop" | "leave" | "stop, callback" => !is(&["idle"]),
        _ => true,
    }
}

fn variant(state: &State, policy: &Policy) -> Option<&'static str> {
    let now = Instant::now();
    let is_recent = |sent: Instant| now < sent + policy.signal_spacing;
    Some(match state {
        State::Idle => "idle",
        State::Starting { .. } => "starting",
        State::Running { reload: None, .. } => "running",
        State::Running { reload: Some(Reload::Held(until)), .. } if now >= until.at => "running, reload due",
        State::Running { reload: Some(Reload::Held(_)), .. } => "running, reload held",
        State::Running { reload: Some(Reload::Refused(_)), .. } => return None,
        State::Backoff { until, .. } if now >= until.at => "backoff, due",
        State::Backoff { .. } => "backoff",
        State::Exited { stop: None, .. } => "stopped",
        State::Exited { stop: Some(_), .. } => "stopped as asked",
        State::Stopping { stop, phase, .. } => {
            let is_late = stop.deadline.is_some_and(|deadline| now >= deadline.at);
            match phase {
                Phase::Holding { quit_sent_at: Some(sent), .. } if !is_late && is_recent(sent.at) => {
                    "holding, just sent"
                }
                Phase::Holding { until, quit_sent_at: Some(_) } if !is_late && now < until.at => {
                    "holding, sent"
                }
                Phase::Holding { quit_sent_at: Some(_), .. } => return None,
                Phase::Holding { .. } if is_late => "holding, past deadline",
                Phase::Holding { until, .. } if now >= until.at => "holding, due",
                Phase::Holding { .. } => "holding",
                Phase::AwaitingGap { quit_sent_at: Some(sent), until, .. } => {
                    if is_late || is_recent(sent.at) || now >= until.at {
                        return None;
                    }
                    "awaiting gap, perhaps sent"
                }
                Phase::AwaitingGap { .. } if is_late => "awaiting gap, past deadline",
                Phase::AwaitingGap { until, .. } if now >= until.at => "awaiting gap, due",
                Phase::AwaitingGap { .. } => "awaiting gap",
                Phase::Draining { refused: Some(refused), .. } if !is_late && now >= refused.retry_at.at => {
                    "draining, refused"
                }
                Phase::Draining { refused: Some(_), .. } => return None,
                Phase::Draining { since, .. } if is_late && is_recent(since.at) => return None,
                Phase::Draining { .. } if is_late => "draining, past deadline",
                Phase::Draining { since, .. } if is_recent(since.at) => "draining since now",
                Phase::Draining { .. } => "draining",
                Phase::Spacing { until } if now >= until.at => "spacing, due",
                Phase::Spacing { .. } => "spacing",
                Phase::Terminating { refused: Some(_), .. } | Phase::Killed { refused: Some(_) } => {
                    return None;
                }
                Phase::Terminating { until, .. } if now >= until.at => "terminating, due",
                Phase::Terminating { .. } => "terminating",
                Phase::Killed { .. } => "killed",
            }
        }
    })
}

/// The name of an event in the table; empty for one that it does not have.
pub(super) fn event_row(event: &Event, handles_quit: bool) -> &'static str {
    match event {
        Event::Boot => "boot",
        Event::Start => "start",
        Event::Spawned(_) => "spawned",
        Event::SpawnFailed(_) => "spawn failed",
        Event::Exited(Exit::Code(0), _) => "exited, code 0",
        Event::Exited(..) => "exited, code 1",
        Event::Tick if handles_quit => "tick, handler",
        Event::Tick => "tick",
        Event::SignalSent(Signal::Drain) => "SIGQUIT sent",
        Event::SignalRefused(Signal::Drain, _) => "SIGQUIT refused",
        Event::Observed(_, observed) if observed.aborts_jobs => "aborts jobs",
        Event::JobRequests(_, Some(0)) => "no open request",
        Event::JobRequests(_, Some(_)) => "open requests",
        Event::JobRequests(_, None) => "requests unknown",
        Event::Stop(stop) if stop.mode == Mode::Forceful => "force",
        Event::Stop(stop) if stop.deadline.is_some_and(|deadline| deadline.at <= Instant::now()) => "",
        Event::Stop(stop) if !stop.callbacks.is_empty() => "stop, callback",
        Event::Stop(_) if handles_quit => "stop, handler",
        Event::Stop(_) => "stop",
        Event::Cancel(_) => "cancel",
        Event::Reload if handles_quit => "reload, handler",
        Event::Reload => "reload",
        Event::CallbackFinished(_) => "called",
        Event::LogRead(_) => "log read",
        Event::Leave(_) => "leave",
        Event::SignalSent(_)
        | Event::SignalRefused(..)
        | Event::Observed(..)
        | Event::Forked(_)
        | Event::Saved(_) => "",
    }
}

/// A runner must not get SIGTERM so soon after SIGQUIT: `Policy::signal_spacing`. The state file has milliseconds.
pub(super) const SPACING: Duration = Duration::from_millis(499);
