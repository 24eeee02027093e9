//! Texts for a drain that failed.

use grit_plugin::{Problem, schema::AttributePath};
use grit_ssh::{Confirmation, Reachability};
use time::format_description::well_known::Rfc3339;

use super::subject::{Subject, named};
use crate::{
    client::{CancelledDrain, ClientError, Offer},
    duration::human,
    explain::{
        code::Code,
        connection,
        failure::Words,
        phrases::{append, append_paragraph, last_seen, sentences, tries},
    },
    fleet::{
        Failure, Reason, Requested,
        drain::{NotDrained, OnUnreachable},
    },
    manager,
    run::assumed,
};

/// What the texts of a drain that failed depend on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DrainWords<'a> {
    pub(crate) manager: &'a str,
    pub(crate) subject: Subject,
    /// What an unreachable host means for this drain.
    pub(crate) on_unreachable: OnUnreachable,
    /// What [`assumed::VARIABLE`] can name the instance by.
    pub(crate) identifier: &'a str,
    /// The variable names other instances.
    pub(crate) names_others: bool,
    /// How the user confirms that the host is gone, if it can be gone.
    pub(crate) offer: Option<&'a Offer>,
    /// A sentence about the other managers of the map.
    pub(crate) others: &'a str,
}

impl<'a> DrainWords<'a> {
    /// Of the action, which has no setting for an unreachable host.
    pub(crate) fn of_action(manager: &'a str) -> Self {
        Self {
            manager,
            subject: Subject::Action,
            on_unreachable: OnUnreachable::Fail,
            identifier: "",
            names_others: false,
            offer: None,
            others: "",
        }
    }
}

impl Words for DrainWords<'_> {
    type Problem = NotDrained;

    fn manager(&self) -> &str {
        self.manager
    }

    fn path(&self) -> AttributePath {
        match self.subject {
            Subject::Drain => AttributePath::root(),
            Subject::ShutdownCreate | Subject::ShutdownUpdate | Subject::Action => manager::at(self.manager),
        }
    }

    fn unreached(&self, failure: &Failure<NotDrained>, error: &ClientError, explained: &mut Problem) {
        let Self { subject, on_unreachable, .. } = *self;
        let requested = failure.requested;
        append(&mut explained.happened, what_was_requested(requested, error));
        append(&mut explained.happened, subject.kept());
        if on_unreachable != OnUnreachable::Fail {
            append(&mut explained.happened, &not_counted(on_unreachable, failure, error));
        }
        if explained.code == Code::ConnectFailed.as_str() {
            append(&mut explained.next_step, &format!("Then {}.", subject.again()));
        }
        let responds = matches!(error.reachability(), Reachability::Answered | Reachability::Refused);
        if responds
            && requested == Requested::No
            && error.confirmation() == Confirmation::Contradicted
            && !error.is_response()
            && subject != Subject::Action
        {
            append_paragraph(&mut explained.next_step, HOST_IS_THERE);
        }
        if let Some(offer) = self.offer {
            if self.names_others {
                append(&mut explained.happened, &not_in_variable(self.identifier));
            }
            append_paragraph(&mut explained.next_step, &subject.host_is_gone(offer));
        }
    }

    fn interrupted(&self, failure: &Failure<NotDrained>) -> Problem {
        let again = self.subject.again();
        Problem::new(
            Code::Interrupted,
            "Drain was interrupted",
            sentences(&[
                &format!(
                    "Runner manager {:?}: the wait was cancelled after {}.",
                    self.manager,
                    human(failure.waited)
                ),
                &last_status(failure),
                match failure.requested {
                    Requested::Accepted => "The shutdown was requested and continues on the host.",
                    Requested::Perhaps => {
                        "The shutdown request was sent, but no response was received: the runner may be draining."
                    }
                    Requested::No => "No shutdown was requested.",
                },
                self.subject.kept(),
            ]),
            match failure.requested {
                Requested::No => format!("To send the shutdown request, {again}."),
                Requested::Perhaps | Requested::Accepted => format!(
                    "Cancelling Terraform does not cancel the drain. To wait for the same drain, {again}."
                ),
            },
        )
    }

    fn problem(&self, failure: &Failure<NotDrained>, problem: &NotDrained) -> Problem {
        let Self { manager, subject, .. } = *self;
        match problem {
            NotDrained::TimedOut { forceful } => Problem::new(
                Code::TimedOut,
                "Runner was not drained in time",
                sentences(&[
                    &format!(
                        "Runner manager {manager:?}: the runner process has not exited within {}.",
                        human(failure.waited)
                    ),
                    &last_status(failure),
                    match (failure.requested, *forceful) {
                        (Requested::No, _) => "No shutdown was requested.",
                        (_, true) => {
                            "A forceful stop was requested, but the runner process is still running."
                        }
                        (_, false) => "The runner is still draining on the host.",
                    },
                    subject.kept(),
                ]),
                if *forceful {
                    format!(
                        "Check the logs of the wrapper and of the runner on the host, then {}.",
                        subject.again()
                    )
                } else {
                    subject.longer_or_forceful()
                },
            ),
            NotDrained::Replaced { pid } => Problem::new(
                Code::WrapperError,
                "Another runner process was reported during the drain",
                sentences(&[
                    &format!(
                        "Runner manager {manager:?}: the wrapper no longer reports the runner process that was draining (PID {pid}), and \
                         has not reported its exit. The wrapper lost its state file, or another wrapper responds at this address. \
                         Process {pid} may still be running jobs."
                    ),
                    subject.kept(),
                ]),
                format!(
                    "On the host, wait until process {pid} has exited (`ps -p {pid}`). Then {}: this also drains the current runner.",
                    subject.again()
                ),
            ),
            NotDrained::Cancelled(cancelled) => self.cancelled(cancelled),
            NotDrained::NetworkUnproved { attempts, error } => {
                let mut explained = connection::explain(manager, error);
                append(&mut explained.happened, &tries(*attempts, failure.waited));
                self.unreached(failure, error, &mut explained);
                explained
            }
        }
    }

    fn complete(&self, _: &Failure<NotDrained>, explained: &mut Problem) {
        append(&mut explained.happened, self.others);
    }
}

impl DrainWords<'_> {
    fn cancelled(&self, CancelledDrain { id, by, at }: &CancelledDrain) -> Problem {
        let by = if by.is_empty() { String::new() } else { format!(" by {by}") };
        let at = at.and_then(|at| at.format(&Rfc3339).ok()).map(|at| format!(" at {at}")).unwrap_or_default();
        Problem::new(
            Code::Cancelled,
            "Drain was cancelled on the host",
            sentences(&[
                &format!(
                    "Runner manager {:?}: the drain {id:?} was cancelled on the host{by}{at}.",
                    self.manager
                ),
                "The runner keeps running and accepts jobs.",
                self.subject.kept(),
            ]),
            format!("Find out why the drain was cancelled. To request it again, {}.", self.subject.again()),
        )
    }
}

fn last_status(failure: &Failure<NotDrained>) -> String {
    match (&failure.last, failure.requested) {
        // The wrapper has accepted the request.
        (None, Requested::Accepted) => "No status was received yet.".to_owned(),
        (last, _) => last_seen(last.as_ref()),
    }
}

fn what_was_requested(requested: Requested, error: &ClientError) -> &'static str {
    match requested {
        Requested::Accepted => {
            "The shutdown was requested, and the runner keeps draining on the host. Its exit was not confirmed."
        }
        Requested::Perhaps => {
            "The shutdown request was sent, but no response was received: the runner may be draining."
        }
        Requested::No => match error.reachability() {
            Reachability::Answered | Reachability::Refused => "No shutdown was requested.",
            Reachability::Absent | Reachability::Unknown => {
                "No shutdown was requested. Jobs may still be running on the host."
            }
        },
    }
}

fn not_in_variable(id: &str) -> String {
    format!("`{}` was not used: it does not contain {id:?}.", assumed::VARIABLE)
}

/// The host key is verified.
const HOST_IS_THERE: &str = "The host exists, so its runner may be running. To give the host up although its login cannot be repaired, first stop the \
                             instance, so that nothing responds at its address.";

/// Why the setting did not apply.
fn not_counted(setting: OnUnreachable, failure: &Failure<NotDrained>, error: &ClientError) -> String {
    let is_local =
        error.reachability() == Reachability::Unknown && error.confirmation() == Confirmation::Contradicted;
    let why = match (failure.requested, error.reachability()) {
        _ if matches!(failure.reason, Reason::Problem(NotDrained::NetworkUnproved { .. })) => {
            "this run has reached no other runner manager, so the network of this machine may have failed"
        }
        (Requested::Accepted | Requested::Perhaps, _) => {
            "this run had already requested the shutdown. If the host stays unreachable, run the same command again: the new run uses \
             the setting until it has requested the shutdown"
        }
        (Requested::No, _) if error.is_response() => "the wrapper responded",
        (Requested::No, Reachability::Answered) => "a server responded at the address of the host",
        (Requested::No, Reachability::Refused) => "the host responded and refused the connection",
        (Requested::No, Reachability::Unknown) if is_local => "the connection was not attempted",
        (Requested::No, Reachability::Unknown) => {
            "the state of the host is unknown, because the attempt failed before it reached the host, or because the connection uses a \
             jump host or a command"
        }
        (Requested::No, Reachability::Absent) => "the host was reachable in at least one of the attempts",
    };
    format!("{} was not used: {why}.", named(setting))
}
