//! Parts of sentences that several texts share.

use std::time::Duration;

use grit_ssh::{Route, TransportError};

use crate::{
    client::{RunnerStatus, Snapshot},
    duration::human,
    run::assumed::{self, Repeated},
};

/// The SSH server, as `h:22`, or `h:22 (jump host 1 in `ssh.proxy_jump`)`.
pub(super) fn server(route: &Route) -> String {
    match route.hop {
        Some(hop) => format!("{} (jump host {hop} in `ssh.proxy_jump`)", route.host),
        None => route.host.to_string(),
    }
}

/// The last step that succeeded.
pub(super) fn login_succeeded(route: &Route) -> String {
    match &route.username {
        Some(name) => format!("the login to {} as {name:?} succeeded", server(route)),
        None => format!("the command of `{}` was started", route.method),
    }
}

/// The next SSH server, or the wrapper.
pub(super) fn forward_target(route: &Route) -> String {
    route.onward.as_ref().map_or_else(|| route.wrapper.to_string(), ToString::to_string)
}

/// The first bytes that the peer sent, safe for a terminal.
pub(super) fn received(error: &TransportError) -> String {
    let bytes = &error.evidence.received;
    if bytes.is_empty() {
        "No data was received.".to_owned()
    } else {
        format!("Data received: {}", shown(bytes))
    }
}

/// Text of a peer: in quotes, with escaped control characters, and truncated.
pub(super) fn shown(bytes: &[u8]) -> String {
    const MAX_CHARS: usize = 300;
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim();
    let mut shown: String = text.chars().take(MAX_CHARS).collect();
    if text.chars().count() > MAX_CHARS {
        shown.push('…');
    }
    format!("{shown:?}.")
}

/// The next step after a failed drain.
pub(super) const SAME_COMMAND: &str = "run the same command again (`terraform apply` or `terraform destroy`)";

/// The command that treats instances as terminated, as a paragraph. The identifiers are of instances or of drain resources.
pub(super) fn assume_terminated_line(ids: &[impl AsRef<str>], repeated: Repeated) -> String {
    assumed::commands(ids, repeated).iter().map(|command| own_line(command)).collect()
}

/// Text that the user copies, as a separate paragraph. Terraform breaks long lines, unless they begin with a space.
pub(super) fn own_line(text: &str) -> String {
    format!("\n\n    {text}")
}

/// A clause about the drain that stops or has stopped the runner: `the runner is draining (id "deploy-7", requested by uid 0, unix socket)`. Upstream's wrapper does not report it.
pub(super) fn drained(snapshot: &Snapshot) -> Option<String> {
    let drain = snapshot.drain()?;
    let what = match snapshot.report.status {
        RunnerStatus::Stopped => "a drain stopped the runner",
        RunnerStatus::InShutdown => "the runner is draining",
        RunnerStatus::Running | RunnerStatus::Unknown(_) => return None,
    };
    let by = &drain.requested_by;
    let requested = if by.is_empty() { String::new() } else { format!(", requested by {by}") };
    Some(format!("{what} (id {:?}{requested})", drain.id))
}

pub(super) fn tries(attempts: u32, waited: Duration) -> String {
    match attempts {
        0 | 1 => String::new(),
        _ => format!("{attempts} attempts in a row failed within {}.", human(waited)),
    }
}

pub(super) fn last_seen(last: Option<&Snapshot>) -> String {
    let Some(snapshot) = last else { return "The wrapper had not responded.".to_owned() };
    let report = &snapshot.report;
    let mut text = format!("Last status: `{}`", report.status);
    if !report.failure_reason.is_empty() {
        text.push_str(&format!(", reason: {}", first_line(&report.failure_reason)));
    }
    if report.status == RunnerStatus::InShutdown
        && let Some(jobs) = snapshot.jobs_left()
    {
        text.push_str(&format!(", {jobs}"));
    }
    text.push('.');
    if let Some(problems) = snapshot.shutdown_problems() {
        text.push_str(&format!(" The wrapper reports: {problems}."));
    }
    text
}

/// A reason without the log lines of the runner that a wrapper may have added.
pub(super) fn first_line(reason: &str) -> &str {
    reason.split_once('\n').map_or(reason, |(first, _)| first)
}

/// Joins sentences. Empty ones are left out.
pub(super) fn sentences(parts: &[&str]) -> String {
    let mut text = String::new();
    for part in parts {
        append(&mut text, part);
    }
    text
}

/// Adds a paragraph.
pub(super) fn append_paragraph(text: &mut String, paragraph: &str) {
    if !text.is_empty() {
        text.push_str("\n\n");
    }
    text.push_str(paragraph);
}

pub(super) fn append(text: &mut String, sentence: &str) {
    if !sentence.is_empty() {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(sentence);
    }
}
