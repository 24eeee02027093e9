//! What the calls of one run have shown.

use std::collections::BTreeSet;

use serde_json::Value as Json;

use super::assumed::Assumed;
use crate::manager::{Identities, WrapperIdentity};

/// What a call has shown about one object.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) event: Event,
    /// The id of the object. A new one is identified by its plan, because Terraform may plan it again.
    pub(crate) object: String,
    /// The name of the runner manager in messages.
    pub(crate) name: String,
    /// The instance of a drain resource.
    pub(crate) instance: Option<String>,
    /// What identifies the runner manager; nothing that is not known yet.
    pub(crate) manager: Identities,
}

/// What happens to an object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    /// The state contains this drain resource.
    Stored,
    /// A plan creates this drain resource.
    New,
    /// A plan keeps this drain resource, or updates it in place.
    Kept,
    /// A plan destroys or replaces this drain resource.
    Ending {
        /// What a health check needs to start the drain; `None` if only the destroy can start it.
        early: Option<Json>,
        /// The user confirms that the instance is gone: it has its runner manager for itself.
        gone: bool,
    },
    /// This drain resource was created.
    Created,
    /// The destroy of this drain resource has begun. Also a failed one counts: its runner may exit later.
    Drained,
    /// This runner manager is in the map of a health check.
    Checked,
    /// A shutdown resource retires this runner manager.
    Retired,
    /// This health check was read, and has stored which drains end.
    HealthRead,
    /// A plan destroys a health check: it cannot start drains.
    HealthEnding,
}

impl Event {
    pub(super) fn is_stored(&self) -> bool {
        matches!(self, Self::Stored)
    }

    pub(super) fn is_kept(&self) -> bool {
        matches!(self, Self::Kept)
    }

    pub(super) fn is_ending(&self) -> bool {
        matches!(self, Self::Ending { .. })
    }

    /// The drain resource exists after the apply.
    pub(super) fn stays(&self) -> bool {
        matches!(self, Self::New | Self::Kept)
    }
}

impl Row {
    /// What a call shows about a runner manager of a map, which has this key, or about the object with this id.
    pub(crate) fn of_manager(event: Event, key: &str, manager: Identities) -> Self {
        Self { event, object: key.to_owned(), name: key.to_owned(), instance: None, manager }
    }

    pub(super) fn is_of(&self, instance: &str) -> bool {
        self.instance.as_deref() == Some(instance)
    }

    pub(super) fn has_instance_of(&self, other: &Self) -> bool {
        self.instance.is_some() && self.instance == other.instance
    }

    /// Whether a connection to one of the two reaches the wrapper of the other one.
    pub(super) fn has_wrapper_of(&self, other: &Self) -> bool {
        self.manager.wrapper.is_some() && self.manager.wrapper == other.manager.wrapper
    }
}

/// The rows of one run, in the order of their calls.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// [`PLAN_CHECK`](super::PLAN_CHECK) is `off`.
    pub(super) off: bool,
    pub(super) assumed: Assumed,
    rows: Vec<Row>,
    /// The wrappers at TCP addresses that were reported.
    unprotected: BTreeSet<WrapperIdentity>,
    /// This process has begun to drain a runner manager.
    pub(super) has_drains: bool,
}

impl Ledger {
    pub(super) fn new(off: bool, assumed: Assumed) -> Self {
        Self { off, assumed, ..Self::default() }
    }

    pub(super) fn add(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// The rows with an event of this kind.
    pub(super) fn of<'a>(&'a self, kind: &'a impl Fn(&Event) -> bool) -> impl Iterator<Item = &'a Row> {
        self.rows.iter().filter(move |row| kind(&row.event))
    }

    /// Removes a drain resource that was destroyed. That it was drained, and where, stays.
    pub(super) fn remove(&mut self, id: &str) {
        self.rows.retain(|row| {
            let is_object = row.event.is_stored() || row.event.is_kept() || row.event.is_ending();
            !(is_object && row.object == id)
        });
    }

    /// Whether this wrapper was not reported before.
    pub(super) fn reports_unprotected(&mut self, wrapper: WrapperIdentity) -> bool {
        self.unprotected.insert(wrapper)
    }

    pub(super) fn early_drain(&self, id: &str) -> Option<Json> {
        let mut rows = self.rows.iter().rev().filter(|row| row.object == id);
        rows.find_map(|row| match &row.event {
            Event::Ending { early, .. } => Some(early.clone()),
            _ => None,
        })?
    }
}
