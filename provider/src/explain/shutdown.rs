//! Texts for a drain: errors, and warnings about a runner that has exited.

use std::time::Duration;

use super::{
    Code, Explained, cause, explain,
    operation::{append, first_line, last_seen, tries},
};
use crate::{
    assume_terminated,
    client::{ClientError, Snapshot},
    duration::human,
    fleet::{
        TooFewPeers, Unfit,
        drain::{Mode, NoCallback, NotDrained, Requested},
    },
    transport::Presence,
};

/// The setting that makes an unreachable host count as terminated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    /// `on_unreachable = "assume_terminated"`.
    Attribute,
    /// `GRIT_ASSUME_TERMINATED`.
    Variable,
}

impl Word {
    fn named(self) -> String {
        match self {
            Self::Attribute => "`on_unreachable = \"assume_terminated\"`".to_owned(),
            Self::Variable => format!("`{}`", assume_terminated::VARIABLE),
        }
    }
}

/// The next step for a host that no longer exists: the command for one run, or the attribute. `id` is the id of the instance or of the
/// drain resource.
pub(crate) fn way_back(id: &str) -> String {
    format!(
        "Only if the host no longer exists (for example because its instance was destroyed outside this configuration or with `-target`): \
         run `{}`, which treats the runner as terminated in this run. To do the same in every run, set \
         `on_unreachable = \"assume_terminated\"` and apply before you remove the drain resource.",
        assume_terminated::command(id)
    )
}

/// Explains why the exit of the runner of `manager` is not confirmed. `id` is the id of the instance or of the drain resource.
pub(crate) fn not_drained(manager: &str, failure: &NotDrained, id: &str, word: Option<Word>) -> Explained {
    match failure {
        NotDrained::Connect { attempts, waited, requested, error } => {
            let mut explained = explain(manager, error);
            append(&mut explained.happened, &tries(*attempts, *waited));
            append(&mut explained.happened, what_was_requested(*requested, error));
            if let Some(word) = word {
                append(&mut explained.happened, &not_counted(word, *requested, error));
            }
            if explained.code == Code::ConnectFailed {
                append(&mut explained.next_step, "Then apply again.");
                if error.presence() == Presence::Absent && word.is_none() {
                    append(&mut explained.next_step, &way_back(id));
                }
            }
            explained
        }
        NotDrained::TimedOut { waited, requested, mode, forced, last } => Explained::new(
            Code::TimedOut,
            "Runner was not drained in time",
            format!(
                "Runner manager {manager:?}: the runner process has not exited within {}. {}{}",
                human(*waited),
                last_seen(last.as_ref()),
                match (requested, *forced || *mode == Mode::Forceful) {
                    (Requested::No, _) => " The instance was kept. No shutdown was requested.",
                    (_, true) => {
                        " The instance was kept; the forceful stop is still in progress on the host."
                    }
                    (_, false) => " The instance was kept; the runner is still draining.",
                }
            ),
            if *forced || *mode == Mode::Forceful {
                "The runner process is still running after a forceful stop. Check the logs of the wrapper and of the runner on the host, \
                 then apply again."
            } else {
                "Apply again to continue waiting. For longer drains, raise `timeouts.delete` and apply this change first. To abort the \
                 remaining jobs, set `on_timeout = \"force\"`."
            },
        ),
        NotDrained::Interrupted { waited, requested, last } => Explained::new(
            Code::Interrupted,
            "Drain was interrupted",
            format!(
                "Runner manager {manager:?}: the wait was cancelled after {}. {}{}",
                human(*waited),
                last_seen(last.as_ref()),
                match requested {
                    Requested::Accepted => {
                        " The shutdown was requested and continues on the host. The instance was kept."
                    }
                    Requested::Perhaps => {
                        " The shutdown request was sent, but no response was received: the runner may be draining. The instance was kept."
                    }
                    Requested::No => " No shutdown was requested. The instance was kept.",
                }
            ),
            match requested {
                Requested::No => "The next apply sends the shutdown request.",
                Requested::Perhaps | Requested::Accepted => {
                    "The next apply continues to wait for the same drain."
                }
            },
        ),
        NotDrained::Guarded(peers) => too_few_peers(manager, peers),
    }
}

fn what_was_requested(requested: Requested, error: &ClientError) -> &'static str {
    match requested {
        Requested::Accepted => {
            "The shutdown was requested, and the runner keeps draining on the host. Its exit was not confirmed, so the instance was kept."
        }
        Requested::Perhaps => {
            "The shutdown request was sent, but no response was received: the runner may be draining. The instance was kept."
        }
        Requested::No => match error.presence() {
            Presence::Answered | Presence::Refused => "No shutdown was requested. The instance was kept.",
            Presence::Absent | Presence::Unseen => {
                "No shutdown was requested. Jobs may still be running there, so the instance was kept."
            }
        },
    }
}

/// Why the setting did not apply.
fn not_counted(word: Word, requested: Requested, error: &ClientError) -> String {
    let why = match (requested, error.presence()) {
        (Requested::Accepted | Requested::Perhaps, _) => {
            "it applies only before a shutdown is requested; apply again if the host stays unreachable"
        }
        (Requested::No, Presence::Answered) => "a server responded at the address of the host",
        (Requested::No, Presence::Refused) => "the host responded and refused the connection",
        (Requested::No, Presence::Unseen) => {
            "the attempt failed before it reached the host, so the state of the host is unknown"
        }
        (Requested::No, Presence::Absent) => "the host was reachable in at least one of the attempts",
    };
    format!("{} was not applied: {why}.", word.named())
}

/// Warns that a host was assumed terminated.
pub(crate) fn assumed_terminated(
    manager: &str,
    attempts: u32,
    waited: Duration,
    error: &ClientError,
    word: Word,
) -> Explained {
    let tries = match attempts {
        1 => "1 attempt".to_owned(),
        more => format!("{more} attempts in a row"),
    };
    let mut happened = format!(
        "Runner manager {manager:?} was not drained: the host was unreachable in {tries} within {} ({}). Because {} is set, the runner is \
         treated as terminated.",
        human(waited),
        cause(error),
        word.named(),
    );
    append(
        &mut happened,
        "If the runner is still running, its jobs are lost when its instance is destroyed.",
    );
    Explained::new(
        Code::ConnectFailed,
        format!("Runner manager {manager} was assumed terminated"),
        happened,
        match word {
            Word::Attribute => "Check that the instance no longer exists.".to_owned(),
            Word::Variable => format!("Unset {} before the next run.", assume_terminated::VARIABLE),
        },
    )
}

/// Warns that a drain became forceful at its deadline.
pub(crate) fn forced(manager: &str, limit: Duration) -> Explained {
    Explained::new(
        Code::TimedOut,
        format!("Runner manager {manager} was stopped forcefully"),
        format!(
            "Runner manager {manager:?} was not drained within {} (`on_timeout = \"force\"`): its remaining jobs were aborted.",
            human(limit)
        ),
        "For longer drains, raise `timeouts.delete`.",
    )
}

/// Warns that the callback of this drain will not be sent.
pub(crate) fn no_callback(manager: &str, why: &NoCallback) -> Explained {
    let (code, why) = match why {
        NoCallback::Upstream => (
            Code::WrapperError,
            "a shutdown was already in progress before this destroy, and upstream's wrapper accepts a callback only with the first request"
                .to_owned(),
        ),
        NoCallback::Refused(error) => (Code::Refused, cause(error)),
    };
    Explained::new(
        code,
        format!("Shutdown callback of {manager} is not sent"),
        format!(
            "The runner of runner manager {manager:?} has exited. Its `shutdown_callback` will not be sent. Reason: {why}."
        ),
        "Send the request of the callback manually.",
    )
}

/// Warns about a runner that did not exit cleanly; none when it did.
pub(crate) fn bad_end(manager: &str, snapshot: &Snapshot, forceful: bool) -> Option<Explained> {
    let happened = match snapshot.detail.as_deref() {
        Some(detail) => detail.bad_end(forceful)?,
        None => {
            let reason = first_line(&snapshot.report.failure_reason);
            if reason.is_empty() {
                return None;
            }
            format!("the wrapper reported: {reason}")
        }
    };
    Some(Explained::new(
        Code::WrapperError,
        format!("Runner of {manager} did not exit cleanly"),
        format!(
            "The runner of runner manager {manager:?} has exited, so its instance may be destroyed, but {happened}."
        ),
        "Check the jobs in GitLab. Check the log of the wrapper before the host is destroyed.",
    ))
}

/// Explains that a drain would leave too few healthy peers.
pub(crate) fn too_few_peers(manager: &str, peers: &TooFewPeers) -> Explained {
    let TooFewPeers { healthy, wanted, unhealthy } = peers;
    let unhealthy: Vec<_> =
        unhealthy.iter().map(|(key, unfit)| format!("{key} ({})", unfit_words(unfit))).collect();
    Explained::new(
        Code::Refused,
        "Too few healthy peers to drain",
        format!(
            "Runner manager {manager:?} was not drained. Healthy peers: {healthy}; required by `guard.min_healthy`: {wanted}. Not \
             healthy: {}.",
            if unhealthy.is_empty() { "none".to_owned() } else { unhealthy.join("; ") }
        ),
        "Make the peers healthy and apply again, or lower `guard.min_healthy` and apply this change first.",
    )
}

fn unfit_words(unfit: &Unfit) -> String {
    match unfit {
        Unfit::DrainedHere => "this apply drains it as well".to_owned(),
        Unfit::AskedToDrain(id) => format!("its drain was requested by {id:?}"),
        Unfit::Status(status) => format!("status `{status}`"),
        Unfit::Unreached(error) => cause(error),
        Unfit::NoAnswer(limit) => format!("no response within {}", human(*limit)),
        Unfit::Invalid(problem) => problem.clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::{fmt::Write as _, io};

    use super::*;
    use crate::{
        client::RunnerStatus,
        transport::{Cause, Phase, Route, TransportError},
    };

    fn route() -> Route {
        Route {
            strategy: "direct",
            host: "mgr-2".parse().unwrap(),
            username: Some("deploy".to_owned()),
            wrapper: "unix:///run/wrapper.sock".parse().unwrap(),
            hop: None,
            onward: None,
            onward_hop: None,
        }
    }

    /// The wrapper does not answer.
    fn mute() -> ClientError {
        let limit = Duration::from_secs(10);
        ClientError::NoAnswer { method: "CheckStatus", limit, silent: false, route: Box::new(route()) }
    }

    /// Nothing listens there.
    fn gone() -> ClientError {
        let cause = Cause::Network(io::Error::from(io::ErrorKind::ConnectionRefused).into());
        TransportError::at(Phase::Tcp, route(), cause).into()
    }

    fn hours(n: u64) -> Duration {
        Duration::from_secs(3600 * n)
    }

    fn all(cases: Vec<Explained>) -> String {
        let mut text = String::new();
        for explained in cases {
            writeln!(text, "Error: {}\n\n{}\n\n----", explained.summary, explained.detail()).unwrap();
        }
        text
    }

    #[test]
    fn failed_drain_messages() {
        let last = || Some(RunnerStatus::InShutdown.into());
        let timed_out = |requested, mode, forced| NotDrained::TimedOut {
            waited: hours(3),
            requested,
            mode,
            forced,
            last: last(),
        };
        let unreached =
            |requested, error| NotDrained::Connect { attempts: 12, waited: hours(1), requested, error };
        let interrupted = |requested, last| NotDrained::Interrupted { waited: hours(2), requested, last };
        let words = |failure| not_drained("m1", &failure, "i-1", None);
        insta::assert_snapshot!(all(vec![
            words(timed_out(Requested::Accepted, Mode::Graceful, false)),
            words(timed_out(Requested::Accepted, Mode::Graceful, true)),
            words(timed_out(Requested::Accepted, Mode::Forceful, false)),
            words(unreached(Requested::Accepted, mute())),
            words(unreached(Requested::Perhaps, mute())),
            words(unreached(Requested::No, mute())),
            words(unreached(Requested::No, gone())),
            not_drained("m1", &unreached(Requested::No, mute()), "i-1", Some(Word::Variable)),
            not_drained("m1", &unreached(Requested::Accepted, gone()), "i-1", Some(Word::Attribute)),
            words(interrupted(Requested::Accepted, last())),
            words(interrupted(Requested::Perhaps, last())),
            words(interrupted(Requested::No, None)),
        ]));
    }

    #[test]
    fn drain_warning_messages() {
        let mut failed = Snapshot::from(RunnerStatus::Stopped);
        failed.report.failure_reason = "exit status 1\nThe last lines of the log".to_owned();
        insta::assert_snapshot!(all(vec![
            assumed_terminated("m1", 12, Duration::from_secs(75), &gone(), Word::Variable),
            assumed_terminated("m1", 1, Duration::from_secs(5), &gone(), Word::Attribute),
            forced("m1", hours(3)),
            no_callback("m1", &NoCallback::Upstream),
            no_callback("m1", &NoCallback::Refused(mute())),
            bad_end("m1", &failed, false).unwrap(),
        ]));
        assert_eq!(bad_end("m1", &RunnerStatus::Stopped.into(), false), None);
    }

    #[test]
    fn too_few_peers_message_names_cause_per_peer() {
        let unhealthy = vec![
            ("m2".to_owned(), Unfit::Unreached(gone())),
            ("m3".to_owned(), Unfit::Status(RunnerStatus::InShutdown)),
            ("m4".to_owned(), Unfit::DrainedHere),
            ("m5".to_owned(), Unfit::AskedToDrain("deploy-7".to_owned())),
            ("m6".to_owned(), Unfit::NoAnswer(Duration::from_secs(30))),
        ];
        insta::assert_snapshot!(all(vec![too_few_peers(
            "m1",
            &TooFewPeers { healthy: 0, wanted: 1, unhealthy }
        )]));
    }
}
