//! What differs between the texts of a drain resource and of a shutdown resource.

use crate::{
    explain::phrases::{self, SAME_COMMAND},
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

    pub(super) fn operation(self) -> &'static str {
        match self {
            Self::Drain => "destroy",
            Self::ShutdownCreate | Self::ShutdownUpdate => "apply",
            Self::Action => "action",
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

    pub(super) fn healthy_peers(self) -> &'static str {
        match self {
            Self::Drain => {
                "Make the peers healthy, then run the same command again.\n\nTo drain the runner without healthy peers, run \
                 `grit-wrapper drain --wait` on the host (this command ignores the guard), then run the same command again. A change of \
                 `guard` in the configuration has no effect on this destroy: it uses the `guard` of the last apply."
            }
            Self::ShutdownCreate | Self::ShutdownUpdate | Self::Action => {
                "Make the peers healthy, or lower `guard.min_healthy`, and apply again."
            }
        }
    }

    pub(super) fn host_is_gone(self, id: &str) -> String {
        match self {
            Self::Drain => phrases::host_is_gone(id),
            Self::ShutdownCreate | Self::ShutdownUpdate | Self::Action => format!(
                "Only if the host no longer exists, or its runner has never started: remove the runner manager from `runner_managers`, \
                 or apply once with {}, as in the line below. The provider then treats the runner as terminated. If the runner is still \
                 running, its jobs are lost.{}",
                assumed::VARIABLE,
                phrases::assume_terminated_line(id, Repeated::Apply)
            ),
        }
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
