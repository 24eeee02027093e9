//! Why a run refuses a plan, and what has the place of a drain resource.

/// Why a plan is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// What the plan does to the drain resources of this instance.
    Conflict {
        instance: String,
        conflict: Conflict,
    },
    SharedRunner(SharedBy),
    /// A shutdown resource would retire the runner manager with this name, which the configuration keeps.
    Kept {
        name: String,
        by: Keeper,
    },
}

/// The ways in which the drain resources of one instance contradict each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Conflict {
    /// A drain resource is created for an instance that has one in the state.
    Superseded,
    /// A drain resource is destroyed, and another drain resource of the same instance is kept.
    Shared,
    /// Two drain resources are created for one instance.
    Twice,
    /// A drain resource is destroyed, and the drain resource of another instance with the same address is kept.
    SameAddress,
}

/// Two instances whose drain resources have one runner manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SharedBy {
    pub(crate) instance: String,
    pub(crate) other: String,
}

/// The resource that keeps a runner manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Keeper {
    Drain,
    Health,
}

/// A drain resource with the instance id or the address of a destroyed drain resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Successor {
    SameManager,
    /// At another address: of another instance, or of the same one after a restart.
    OtherManager,
    /// This other instance has the address now.
    OtherInstance(String),
}
