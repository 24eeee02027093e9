//! The names of states and events in traces and counts.

use grit_wrapper::supervise::{Event, RequestsRead, State, StopOutcome};

pub(super) fn state_name(state: &State) -> &'static str {
    match state {
        State::Exited { stop: Some(stop), .. } => match stop.outcome {
            Some(StopOutcome::OpenRequests) => "exited with open requests",
            _ => "exited after a stop",
        },
        State::Exited { stop: None, .. } => "exited",
        other => other.name(),
    }
}

pub(super) fn event_name(event: &Event) -> &'static str {
    match event {
        Event::Boot => "boot",
        Event::Start => "start",
        Event::Spawned(_) => "spawned",
        Event::Appeared(_) => "appeared",
        Event::NotRestarted => "not restarted",
        Event::Looked(_) => "looked",
        Event::SpawnFailed(_) => "spawn failed",
        Event::Exited(..) => "exit",
        Event::SignalSent(_) => "signal sent",
        Event::SignalRefused(..) => "signal refused",
        Event::Tick => "tick",
        Event::Observed(..) => "observed",
        Event::JobRequests(_, RequestsRead { open: Some(0), .. }) => "no open request",
        Event::JobRequests(..) => "open requests",
        Event::RequestsCancelled(..) => "requests cancelled",
        Event::Stop(_) => "stop",
        Event::Cancel(_) => "cancel",
        Event::Reload => "reload",
        Event::Leave(_) => "leave",
        Event::CallbackFinished(_) => "callback finished",
        Event::LogRead(_) => "log read",
        Event::Saved(_) => "saved",
    }
}
