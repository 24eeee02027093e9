//! The scripts that run in the simulation (`simulation::scripts`) and with real processes (`tests/tests/e2e/simulation.rs`). Both have the traces
//! of the files in `simulation/scripts/`.

use Step::{Apply, Assigned, Job, On, Release, Until};

/// What the users do, one step after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// `terraform apply` in a directory with these managers and their versions; without managers, `terraform destroy`.
    Apply {
        directory: Directory,
        managers: Managers,
        /// What happens at the same time.
        meanwhile: &'static [Step],
    },
    /// A job runs until `Release`.
    Job,
    /// GitLab has assigned a job to a request whose response is on its way for long.
    Assigned,
    Release,
    /// Waits until this line has been so often in the traces of a host.
    Until(&'static str, &'static str, usize),
    On(&'static str, Action),
    /// Ctrl-C: the apply fails.
    Interrupt,
}

/// Keys and versions.
pub type Managers = &'static [(&'static str, u32)];

/// What happens to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    KillWrapper,
    Reset,
    /// `grit-wrapper drain`.
    Drain,
    /// `grit-wrapper drain --force`.
    Force,
    /// `grit-wrapper start`.
    Start,
}

/// A root module with its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Directory {
    pub name: &'static str,
    pub has_drains: bool,
    /// Its shutdown resource shuts down the managers of this directory.
    pub retires: Option<&'static str>,
}

const MAIN: Directory = Directory { name: "", has_drains: true, retires: None };

const V1: Managers = &[("m1-v1", 1)];
const V2: Managers = &[("m1-v2", 2)];
const DRAINS: Step = Until("m1-v1", "SIGQUIT", 1);

const WAITS: Step = Until("m1-v1", "the next wrapper waits for the runner", 1);

const fn apply(managers: Managers) -> Step {
    apply_while(managers, &[])
}

const fn apply_while(managers: Managers, meanwhile: &'static [Step]) -> Step {
    Apply { directory: MAIN, managers, meanwhile }
}

/// Version 1, then version 2 while a job runs, then a destroy. `meanwhile`: in the second step.
const fn roll(meanwhile: &'static [Step]) -> [Step; 4] {
    [apply(V1), Job, apply_while(V2, meanwhile), apply(&[])]
}

/// One directory after the other.
const fn directories(first: Directory, second: Directory, drains: [&'static [Step]; 2]) -> [Step; 5] {
    let [in_apply, in_destroy] = drains;
    [
        Apply { directory: first, managers: V1, meanwhile: &[] },
        Job,
        Apply { directory: second, managers: V2, meanwhile: in_apply },
        Apply { directory: first, managers: &[], meanwhile: in_destroy },
        Apply { directory: second, managers: &[], meanwhile: &[] },
    ]
}

const OLD: Directory = Directory { name: "v1", ..MAIN };
const NEW: Directory = Directory { name: "v2", ..MAIN };

pub const ROLLOUT: &[Step] = &roll(&[DRAINS, Release]);

pub const KILLED_WRAPPER: &[Step] = &roll(&[DRAINS, On("m1-v1", Action::KillWrapper), WAITS, Release]);

pub const FORCED_DRAIN: &[Step] =
    &roll(&[DRAINS, On("m1-v1", Action::Force), Until("m1-v1", "job 1 is lost", 1), Release]);

pub const INTERRUPTED: &[Step] =
    &[apply(V1), Job, apply_while(V2, &[DRAINS, Step::Interrupt, Release]), apply(V2), apply(&[])];

/// The host restarts without a shutdown.
pub const RESET_HOST: &[Step] = &roll(&[DRAINS, On("m1-v1", Action::Reset)]);

/// `create_before_destroy` of an instance with the same key: the old one is a deposed object.
pub const STABLE_KEYS: &[Step] =
    &[apply(&[("m1", 1)]), Job, apply_while(&[("m1", 2)], &[Until("m1", "SIGQUIT", 1), Release]), apply(&[])];

/// The destroy of the old directory drains.
pub const TWO_DIRECTORIES: &[Step] = &directories(OLD, NEW, [&[], &[DRAINS, Release]]);

/// The apply of the new directory drains.
pub const RETIRING: &[Step] = &directories(
    Directory { has_drains: false, ..OLD },
    Directory { retires: Some("v1"), ..NEW },
    [&[DRAINS, Release], &[]],
);

/// The wrapper waits for the response with the job before it sends SIGQUIT.
pub const ASSIGNED_AT_DRAIN: &[Step] = &[
    apply(V1),
    Assigned,
    On("m1-v1", Action::Drain),
    DRAINS,
    Release,
    Until("m1-v1", "runner exits with code 0", 1),
    apply(V2),
    apply(&[]),
];

/// The kernel sends SIGQUIT, which does not wait for the response: the second job is lost.
pub const ASSIGNED_AT_KILL: &[Step] = &[
    apply(V1),
    Job,
    Assigned,
    On("m1-v1", Action::KillWrapper),
    WAITS,
    Release,
    Until("m1-v1", "runner takes jobs", 2),
    apply(V2),
    apply(&[]),
];

/// A runner that an operator has drained and started again is drained again.
pub const STARTED_AGAIN: &[Step] = &[
    apply(V1),
    On("m1-v1", Action::Drain),
    Until("m1-v1", "draining -> stopped", 1),
    On("m1-v1", Action::Start),
    Until("m1-v1", "runner takes jobs", 2),
    Job,
    apply_while(V2, &[Until("m1-v1", "SIGQUIT", 2), Release]),
    apply(&[]),
];
