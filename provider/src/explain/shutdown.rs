//! The words for a drain: why it failed, and what did not go as it should although the runner has ended.

use std::time::Duration;

use super::{
    Code, Explained, cause, explain,
    operation::{append, first_line, last_seen, tries},
};
use crate::{
    assume_terminated,
    client::{ClientError, Look},
    duration::human,
    fleet::{
        TooFewPeers, Unfit,
        drain::{Mode, NoCallback, NotDrained, Requested},
    },
    transport::Presence,
};

/// By which word of the user an absent host counts as terminated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
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

/// What to do about a host that is gone for good: the command for one run, and the lasting way. `id` names the instance or its guard.
pub fn way_back(id: &str) -> String {
    format!(
        "Only if the host is gone for good, or its instance was destroyed before its guard (by `-target`, or by hand): run once `{}`, which \
         takes its runner for terminated in that run alone. `on_unreachable = \"assume_terminated\"` says the same for every run; apply it \
         before you remove the guard.",
        assume_terminated::command(id)
    )
}

/// Explains why the runner of `manager` is not known to have ended. `id` names its instance or its guard.
pub fn not_drained(
    manager: &str,
    failure: &NotDrained<ClientError>,
    id: &str,
    word: Option<Word>,
) -> Explained {
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
                "Runner manager {manager:?}: the runner process has not ended within {}. {}{}",
                human(*waited),
                last_seen(last.as_ref()),
                match (requested, *forced || *mode == Mode::Forceful) {
                    (Requested::No, _) => " The instance was kept. No shutdown was requested.",
                    (_, true) => {
                        " The instance was kept. The runner was asked to abort its jobs and to end."
                    }
                    (_, false) => " The instance was kept; the runner goes on draining.",
                }
            ),
            if *forced || *mode == Mode::Forceful {
                "Even the forceful shutdown did not end it. Look at the log of the wrapper and of the runner on the host, then apply \
                     again."
            } else {
                "Apply again to go on waiting where this left off. For longer drains raise `timeouts.delete` and apply that first; to \
                     abort the jobs that are left, set `on_timeout = \"force\"`."
            },
        ),
        NotDrained::Interrupted { waited, requested, last } => Explained::new(
            Code::Interrupted,
            "Drain was interrupted",
            format!(
                "Runner manager {manager:?}: Terraform asked to stop after {}. {}{}",
                human(*waited),
                last_seen(last.as_ref()),
                match requested {
                    Requested::Accepted => {
                        " The shutdown was requested before and goes on on the host; the instance was kept."
                    }
                    Requested::Perhaps => {
                        " The shutdown may have been requested: its answer did not arrive. The instance was kept."
                    }
                    Requested::No => " No shutdown was requested; the instance was kept.",
                }
            ),
            match requested {
                Requested::No => "The next apply begins with it.",
                Requested::Perhaps | Requested::Accepted => {
                    "The next apply attaches to it and goes on waiting."
                }
            },
        ),
        NotDrained::Guarded(peers) => too_few_peers(manager, peers),
    }
}

fn what_was_requested(requested: Requested, error: &ClientError) -> &'static str {
    match requested {
        Requested::Accepted => {
            "The shutdown was requested before: the runner goes on draining. Its end was not seen, so the instance was kept."
        }
        Requested::Perhaps => {
            "The request for the shutdown was sent, and its answer was lost: the runner may be draining. The instance was kept."
        }
        Requested::No => match error.presence() {
            Presence::Answered | Presence::Refused => "No shutdown was requested, and the instance was kept.",
            Presence::Absent | Presence::Unseen => {
                "No shutdown was requested. Jobs may run there, so the instance was kept."
            }
        },
    }
}

/// Why the user's word did not count.
fn not_counted(word: Word, requested: Requested, error: &ClientError) -> String {
    let why = match (requested, error.presence()) {
        (Requested::Accepted | Requested::Perhaps, _) => {
            "it counts only before a shutdown was requested; apply again if the host stays unreachable"
        }
        (Requested::No, Presence::Answered) => "something answers at the address of the host",
        (Requested::No, Presence::Refused) => "the host answers and refuses the connection",
        (Requested::No, Presence::Unseen) => {
            "the attempt failed before it reached the host, so nothing is known about the host"
        }
        (Requested::No, Presence::Absent) => "the host was not unreachable in all attempts in a row",
    };
    format!("{} was not applied: {why}.", word.named())
}

/// Tells that a host was taken for terminated.
pub fn assumed_terminated(
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
        "Runner manager {manager:?} was not drained, because {} says that an unreachable host is terminated. It was not reached in {tries} \
         within {}: {}.",
        word.named(),
        human(waited),
        cause(error)
    );
    append(&mut happened, "If a runner still runs there, its jobs are lost when its instance is destroyed.");
    Explained::new(
        Code::ConnectFailed,
        format!("Runner manager {manager} was taken for terminated"),
        happened,
        match word {
            Word::Attribute => String::new(),
            Word::Variable => format!("Unset {} before the next run.", assume_terminated::VARIABLE),
        },
    )
}

/// Tells that a drain became forceful at its deadline.
pub fn forced(manager: &str, limit: Duration) -> Explained {
    Explained::new(
        Code::TimedOut,
        format!("Runner manager {manager} was shut down forcefully"),
        format!(
            "Runner manager {manager:?} was not drained within {} (`on_timeout = \"force\"`): the jobs that were left were aborted.",
            human(limit)
        ),
        "For longer drains raise `timeouts.delete`.",
    )
}

/// Tells that the callback of this drain will not be made.
pub fn no_callback(manager: &str, why: &NoCallback<ClientError>) -> Explained {
    let (code, why) = match why {
        NoCallback::Upstream => (
            Code::WrapperError,
            "a shutdown had begun before this destroy, and upstream's wrapper takes a callback only with the first request".to_owned(),
        ),
        NoCallback::Refused(error) => (Code::Refused, format!("the wrapper refused it: {}", cause(error))),
    };
    Explained::new(
        code,
        format!("Shutdown callback of {manager} is not made"),
        format!("Runner manager {manager:?} has ended. Its `shutdown_callback` will not be called: {why}."),
        "Do by hand what the callback would have done.",
    )
}

/// Tells of a runner that did not end well; none when it did, or when that is not known to matter.
pub fn bad_end(manager: &str, look: &Look, forceful: bool) -> Option<Explained> {
    let happened = match look.detail.as_deref() {
        Some(detail) => detail.bad_end(forceful)?,
        None => {
            let reason = first_line(&look.report.failure_reason);
            if reason.is_empty() {
                return None;
            }
            format!("the wrapper says: {reason}")
        }
    };
    Some(Explained::new(
        Code::WrapperError,
        format!("Runner manager {manager} did not end cleanly"),
        format!("Runner manager {manager:?} has ended, so its instance may be destroyed, but {happened}."),
        "Look at the jobs in GitLab, and at the log of the wrapper on the host while the host is there.",
    ))
}

/// Explains that a drain would leave too few healthy peers.
pub fn too_few_peers(manager: &str, peers: &TooFewPeers<ClientError>) -> Explained {
    let TooFewPeers { healthy, wanted, unhealthy } = peers;
    let unhealthy: Vec<_> =
        unhealthy.iter().map(|(key, unfit)| format!("{key} ({})", unfit_words(unfit))).collect();
    Explained::new(
        Code::Refused,
        "Too few healthy peers to drain",
        format!(
            "Runner manager {manager:?} was not drained: `guard` needs at least {wanted} healthy peer(s), and {healthy} are. Not healthy: \
             {}.",
            if unhealthy.is_empty() { "none".to_owned() } else { unhealthy.join("; ") }
        ),
        "Make the peers healthy, then apply again; or lower `guard.min_healthy` and apply that first.",
    )
}

fn unfit_words(unfit: &Unfit<ClientError>) -> String {
    match unfit {
        Unfit::DrainedHere => "this apply drains it, too".to_owned(),
        Unfit::AskedToDrain(id) => format!("it was asked to drain, by {id:?}"),
        Unfit::Status(status) => format!("status `{status}`"),
        Unfit::Unreached(error) => cause(error),
        Unfit::NoAnswer(limit) => format!("no answer within {}", human(*limit)),
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
        let mut failed = Look::from(RunnerStatus::Stopped);
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
