//! What differs between the texts of a drain resource and of a shutdown resource.

use crate::{
    client::Offer,
    explain::phrases::{SAME_COMMAND, append, assume_terminated_line},
    fleet::drain::OnUnreachable,
    run::assumed::{self, Repeated},
};

/// The operation that drains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    /// The destroy of a `grit_runner_drain`.
    Drain,
    /// The create of a `grit_runner_shutdown`.
    ShutdownCreate,
    /// Its update.
    ShutdownUpdate,
    /// The action `grit_drain`.
    Action,
}

impl Subject {
    pub(super) fn timeout(self) -> &'static str {
        match self {
            Self::Drain => "timeouts.delete",
            Self::ShutdownCreate => "timeouts.create",
            Self::ShutdownUpdate => "timeouts.update",
            Self::Action => "timeouts.invoke",
        }
    }

    /// What continues a drain, as a clause.
    pub(super) fn again(self) -> &'static str {
        match self {
            Self::Drain => SAME_COMMAND,
            Self::ShutdownCreate | Self::ShutdownUpdate => "apply again",
            Self::Action => "invoke the action again",
        }
    }

    /// What a failure keeps, as a sentence. The instance itself can be gone, for example after a destroy with `-target`.
    pub(super) fn kept(self) -> &'static str {
        match self {
            Self::Drain => KEPT,
            Self::ShutdownCreate | Self::ShutdownUpdate | Self::Action => "",
        }
    }

    /// What the exit of a runner allows, as a sentence.
    pub(super) fn consequence(self) -> &'static str {
        match self {
            Self::Drain => {
                "The drain is complete, so Terraform continues, and destroys the instance if this is planned."
            }
            Self::ShutdownCreate | Self::ShutdownUpdate | Self::Action => "The shutdown is complete.",
        }
    }

    /// The next step after a timeout. A destroy uses the values of the last apply.
    pub(super) fn longer_or_forceful(self) -> String {
        let timeout = self.timeout();
        match self {
            Self::Drain => format!(
                "To continue waiting, {SAME_COMMAND}. To abort the remaining jobs first, run `grit-wrapper drain --force --wait \
                 --address ADDRESS` on the host (ADDRESS: the value of `wrapper_address`). For the next rollout, raise `{timeout}` \
                 and apply before you remove a runner manager from the configuration. After the removal, the timeout can no longer be \
                 changed."
            ),
            Self::ShutdownCreate | Self::ShutdownUpdate => format!(
                "To continue waiting, apply again. For longer drains, raise `{timeout}`. To abort the remaining jobs, set \
                 `mode = \"forceful\"` and apply."
            ),
            Self::Action => format!(
                "To continue waiting, invoke the action again. For longer drains, raise `{timeout}`. To abort the remaining jobs, set \
                 `mode = \"forceful\"` and invoke the action again."
            ),
        }
    }

    /// How the user confirms that a host is gone.
    pub(super) fn host_is_gone(self, offer: &Offer) -> String {
        let (instances, is_alone) = match offer {
            Offer::InErrorOf(manager) => {
                return format!(
                    "Only if the host no longer exists, or its runner has never started: the error of runner manager {manager:?} contains the command \
                     that treats the runners of all unreachable hosts of this run as terminated."
                );
            }
            Offer::Command { instances, is_alone } => (instances, *is_alone),
        };
        let (hosts, repeated) = match self {
            Self::Drain => (
                "run the failed command once with the variable in the line below. Replace COMMAND with `apply` or `destroy`, whichever failed",
                Repeated::Failed,
            ),
            Self::ShutdownCreate | Self::ShutdownUpdate | Self::Action => (
                "remove the runner manager from `runner_managers`, or apply once with the variable in the line below",
                Repeated::Apply,
            ),
        };
        let mut text = String::new();
        if is_alone {
            append(
                &mut text,
                "This run has reached no host: first check the network of the machine that runs Terraform, for example its VPN.",
            );
        }
        append(
            &mut text,
            &format!("Only if the host no longer exists, or its runner has never started: {hosts}."),
        );
        if let many @ 2.. = instances.len() {
            append(
                &mut text,
                &format!(
                    "The line contains all {many} hosts that this run has not reached: remove each host that exists."
                ),
            );
        }
        append(
            &mut text,
            "The provider then treats the runner as terminated. If the runner is still running, its jobs are lost. In CI, set the variable \
             for one pipeline only.",
        );
        text + &assume_terminated_line(instances, repeated)
    }
}

pub(super) const KEPT: &str =
    "The drain resource stays in the state, and Terraform does not destroy its instance.";

/// The setting by which an unreachable host counts as terminated.
pub(super) fn named(setting: OnUnreachable) -> String {
    match setting {
        OnUnreachable::Confirmed => format!("`{}`", assumed::VARIABLE),
        OnUnreachable::Fail | OnUnreachable::AssumeTerminated => {
            "`on_unreachable = \"assume_terminated\"`".to_owned()
        }
    }
}

/// The title of a warning that an assumption counted.
pub(super) fn assumed_title(manager: &str) -> String {
    format!("Runner manager {manager} was assumed terminated")
}

pub(super) fn unset_variable() -> String {
    format!("Unset {} before the next run.", assumed::VARIABLE)
}
