//! What the ledger of a run refuses: pure functions of it.
//!
//! Two mistakes would lose jobs:
//!
//! - **A drain by accident.** With `-replace` of a drain resource, a taint, or a rename without a `moved` block, Terraform destroys a drain resource
//!   and creates another one for the same instance. The destroy would shut down the runner of an instance that is kept. In a rollout, the old
//!   instance is destroyed as well. A plan is refused if
//!   - the instance of a drain resource that ends gets a new one, or has another one that is kept;
//!   - an instance with a stored drain resource gets a second one, or gets two new ones;
//!   - the address of a drain resource that ends belongs to one of another instance that is kept.
//! - **One exit as evidence for two instances.** If the drain resources of two instances reach one wrapper, a destroy drains the runner of one of
//!   them, and the exit counts for both. Two that stay, two that end, or two that drain must not have one wrapper; one that ends and one that
//!   stays may, which is a replacement at a fixed address.
//!
//! A third one drains runners that are in use: a `grit_runner_shutdown` retires the managers of *another* deployment version. A wrong variable or a
//! wrong state path can put the managers of this version into its map.
//!
//! If the instance of a drain resource became known only during the apply, it is too late to refuse the plan: see [`successor`].

use grit_plugin::Walk;

use super::{
    ledger::{Event, Ledger, Row},
    refusal::{Conflict, Keeper, Refusal, SharedBy, Successor},
};
use crate::manager::{Identities, WrapperIdentity};

/// What the ledger contradicts in `row`, the next one.
pub(super) fn refusals(ledger: &Ledger, row: &Row, walk: Walk) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    if !ledger.off
        && let Some(instance) = &row.instance
    {
        let conflict = conflict(ledger, row, walk);
        refusals.extend(conflict.map(|conflict| Refusal::Conflict { instance: instance.clone(), conflict }));
        refusals.extend(shared_runner(ledger, row, instance).map(Refusal::SharedRunner));
    }
    let keeper = match row.event {
        Event::New | Event::Kept => is_retired(ledger, &row.manager).then_some(Keeper::Drain),
        Event::Checked => is_retired(ledger, &row.manager).then_some(Keeper::Health),
        Event::Retired => keeper(ledger, &row.manager),
        _ => None,
    };
    refusals.extend(keeper.map(|by| Refusal::Kept { name: row.name.clone(), by }));
    refusals
}

/// What the ledger contradicts in its new drain resources, in a plan.
pub(super) fn contradictions(ledger: &Ledger) -> Vec<Refusal> {
    let mut found = Vec::new();
    for refusal in ledger.of(&|event| *event == Event::New).flat_map(|row| refusals(ledger, row, Walk::Plan))
    {
        if !found.contains(&refusal) {
            found.push(refusal);
        }
    }
    found
}

fn conflict(ledger: &Ledger, row: &Row, walk: Walk) -> Option<Conflict> {
    let has = |kind: fn(&Event) -> bool| ledger.of(&kind).any(|other| other.has_instance_of(row));
    let has_other = |kind: fn(&Event) -> bool| {
        ledger.of(&kind).any(|other| other.has_instance_of(row) && other.object != row.object)
    };
    // Of another instance.
    let at_address = |kind: fn(&Event) -> bool| {
        ledger.of(&kind).any(|other| other.has_wrapper_of(row) && !other.has_instance_of(row))
    };
    let is_new = |event: &Event| *event == Event::New;
    let is_created = |event: &Event| *event == Event::Created;
    match row.event {
        // The create of an apply must not fail.
        Event::New if walk == Walk::Apply => None,
        Event::New if has(Event::is_stored) => Some(Conflict::Superseded),
        Event::New => has_other(is_new).then_some(Conflict::Twice),
        Event::Kept if has_other(Event::is_ending) => Some(Conflict::Shared),
        Event::Kept if has(is_new) && !has(is_created) => Some(Conflict::Superseded),
        Event::Kept => at_address(Event::is_ending).then_some(Conflict::SameAddress),
        Event::Ending { .. } if has(is_created) => None,
        Event::Ending { .. } if has(is_new) => Some(Conflict::Superseded),
        Event::Ending { .. } if has_other(Event::is_kept) => Some(Conflict::Shared),
        Event::Ending { .. } => at_address(Event::is_kept).then_some(Conflict::SameAddress),
        _ => None,
    }
}

/// The other instance whose drain resource has the same runner manager, if there is one.
fn shared_runner(ledger: &Ledger, row: &Row, instance: &str) -> Option<SharedBy> {
    let kind: fn(&Event) -> bool = match row.event {
        Event::New | Event::Kept => Event::stays,
        Event::Ending { gone: false, .. } => |event| matches!(event, Event::Ending { gone: false, .. }),
        Event::Drained => |event| *event == Event::Drained,
        _ => return None,
    };
    // The first one has the runner manager.
    let mut at_wrapper = ledger.of(&kind).filter(|other| other.has_wrapper_of(row));
    let other = at_wrapper.find_map(|other| other.instance.clone())?;
    (other != instance).then(|| SharedBy { instance: instance.to_owned(), other })
}

fn is_retired(ledger: &Ledger, manager: &Identities) -> bool {
    ledger.of(&|event| *event == Event::Retired).any(|row| row.manager.overlaps(manager))
}

/// The resource that keeps this runner manager. A drain resource is the more precise cause.
fn keeper(ledger: &Ledger, manager: &Identities) -> Option<Keeper> {
    let keeps = |kind: fn(&Event) -> bool| ledger.of(&kind).any(|row| row.manager.overlaps(manager));
    if keeps(Event::stays) {
        Some(Keeper::Drain)
    } else {
        keeps(|event| *event == Event::Checked).then_some(Keeper::Health)
    }
}

/// What has the instance or the wrapper of a drain resource that is destroyed.
///
/// The drain of a superseded drain resource is left out if the new one has the same runner manager, and otherwise its destroy fails. Only with
/// `create_before_destroy` is the new one created first.
pub(super) fn successor(ledger: &Ledger, instance: &str, manager: &WrapperIdentity) -> Option<Successor> {
    let is_created = |event: &Event| *event == Event::Created;
    let is_at = |row: &Row| row.manager.wrapper.as_ref() == Some(manager);
    if let Some(created) = ledger.of(&is_created).filter(|row| row.is_of(instance)).last()
        && !ledger.off
    {
        return Some(if is_at(created) { Successor::SameManager } else { Successor::OtherManager });
    }
    // Also with the check off: this connection would never reach the old instance.
    let other = ledger.of(&is_created).find(|row| !row.is_of(instance) && is_at(row))?;
    other.instance.clone().map(Successor::OtherInstance)
}
