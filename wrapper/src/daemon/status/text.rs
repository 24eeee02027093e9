//! The texts of a status. They are limited, so that a status has less than 64 KiB and every client can read it.

use std::time::Duration;

use grit_proto::{
    duration::human,
    json::{short, whole_seconds},
    wrapper_v1::{Drain, Health, State as PublicState, Status},
};

use crate::{
    supervise::{State, Supervision},
    text::visible::visible_line,
};

const MAX_REASONS: usize = 20;
const MAX_REASON: usize = 500;
/// The failure, with the last error of the log.
const MAX_FAILURE: usize = 4 * 1024;
pub(super) const MAX_SPAWN_ERROR: usize = 2 * 1024;
/// A text of the runner, such as its version.
pub(super) const MAX_NAME: usize = 200;

/// One line for progress displays and for errors. Its subject is the runner.
pub(crate) fn line(status: &Status) -> String {
    let nothing = Health::default();
    let health = status.health.as_ref().unwrap_or(&nothing);
    let mut line = format!("is {}", short(status.state().as_str_name()));
    if status.state() == PublicState::Running {
        line += &format!(", health level {}", short(health.level().as_str_name()));
    }
    if let Some(Drain { signalled: false, open_requests: Some(open), .. }) = status.drain {
        line += &format!(", waiting until no job request is open ({open} open)");
    }
    if let Some(jobs) = health.jobs {
        line += &format!(", {jobs} {}", if jobs == 1 { "job" } else { "jobs" });
    }
    if let Some(oldest) = &health.oldest_job {
        line += &format!(", oldest job {} in stage {}", age_text(oldest.age), visible_line(&oldest.stage));
    }
    line
}

/// The age of a job, in whole seconds.
pub(crate) fn age_text(age: Option<prost_types::Duration>) -> String {
    human(Duration::from_secs(whole_seconds(age)))
}

/// The failure of the runner, with the last error of its log. Empty without a failure.
pub(crate) fn failure(supervision: &Supervision) -> String {
    let mut text = match &supervision.state {
        State::Backoff { end } => {
            let why = end.failure().unwrap_or_else(|| "exit status 0".to_owned());
            let times = supervision.restarts.failures;
            format!(
                "waiting to restart the runner after {times} consecutive failures; the last failure: {why}"
            )
        }
        State::Exited { end, .. } => end.failure().unwrap_or_default(),
        State::Idle | State::Starting | State::Running { .. } | State::Stopping { .. } => String::new(),
    };
    if let Some(line) = supervision.last_error.as_ref().filter(|_| !text.is_empty()) {
        text += &format!("\nThe last error in the runner's log: {line}");
    }
    shortened(&text, MAX_FAILURE)
}

/// A runner with many sections can have as many reasons.
pub(super) fn shown_reasons(all: &[String]) -> Vec<String> {
    let mut texts: Vec<_> = all.iter().take(MAX_REASONS).map(|text| shortened(text, MAX_REASON)).collect();
    if let Some(others @ 1..) = all.len().checked_sub(MAX_REASONS) {
        texts.push(format!("and {others} more"));
    }
    texts
}

/// The text, or its first `limit` bytes.
pub(super) fn shortened(text: &str, limit: usize) -> String {
    const MARK: &str = "…";
    if text.len() <= limit {
        return text.to_owned();
    }
    let most = limit.saturating_sub(MARK.len());
    let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    format!("{}{MARK}", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortened_text_is_cut_at_char_boundary() {
        assert_eq!(shortened("abc", 3), "abc");
        assert_eq!(shortened("abcdef", 5), "ab…");
        assert_eq!(shortened("ééééé", 8), "éé…");
    }

    #[test]
    fn reasons_beyond_the_limit_are_counted() {
        let all: Vec<_> = (0..1000).map(|section| format!("section {section} does not poll")).collect();
        let shown = shown_reasons(&all);
        assert_eq!((shown.len(), shown[19].as_str(), shown[20].as_str()), (21, &*all[19], "and 980 more"));
        assert_eq!(shown_reasons(&all[..20]), all[..20]);
    }
}
