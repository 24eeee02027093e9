//! The audit log line of each accepted change.

use crate::supervise::{Answer, Stop};
use crate::{daemon::serve::requester::Requester, text::visible::visible_line};
use tracing::info;

/// An accepted change. Unknown and inapplicable values are omitted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Change<'a> {
    pub(crate) action: &'static str,
    /// `started`, `joined`, `already` or similar.
    pub(crate) outcome: &'static str,
    pub(crate) mode: Option<&'static str>,
    pub(crate) id: Option<&'a str>,
    /// The id of the joined drain.
    pub(crate) joined_id: Option<&'a str>,
    pub(crate) reason: Option<&'a str>,
    pub(crate) deadline_seconds: Option<u64>,
    pub(crate) callbacks: Option<usize>,
}

impl<'a> Change<'a> {
    pub(crate) fn of(action: &'static str) -> Self {
        Self { action, outcome: "started", ..Self::default() }
    }

    /// A drain that starts.
    pub(crate) fn drain(stop: &'a Stop) -> Self {
        Self {
            mode: Some(stop.mode.name()),
            id: Some(stop.id.as_str()),
            reason: Some(&stop.reason),
            deadline_seconds: stop.deadline.map(|deadline| deadline.since(stop.requested).as_secs()),
            callbacks: (!stop.callbacks.is_empty()).then_some(stop.callbacks.len()),
            ..Self::of("drain")
        }
    }

    /// Adds the supervisor's answer.
    pub(crate) fn answered(self, answer: &'a Answer) -> Self {
        match answer {
            Answer::Done => self,
            Answer::Already => Self { outcome: "already", ..self },
            Answer::Joined(id) => Self { outcome: "joined", joined_id: Some(id.as_str()), ..self },
        }
    }

    /// Writes the audit log line.
    pub(crate) fn log(&self, requester: Requester) {
        let shown = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(visible_line);
        let (uid, gid, pid) = requester.ids();
        info!(
            action = self.action,
            outcome = self.outcome,
            mode = self.mode,
            id = shown(self.id),
            joined_id = shown(self.joined_id),
            reason = shown(self.reason),
            deadline_seconds = self.deadline_seconds,
            callbacks = self.callbacks,
            transport = requester.transport(),
            uid,
            gid,
            pid,
            peer = requester.peer(),
            "change accepted"
        );
    }
}
