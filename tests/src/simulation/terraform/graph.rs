//! The order of an apply, by the rules M1 to M6 of docs/adr/0002-order-of-operations.md: all resources have `create_before_destroy`, and each refers to
//! those of the kinds before it.

use std::collections::BTreeSet;

use super::{
    Kind, Terraform,
    plan::{Action, Change},
};

/// A step of an apply.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) kind: Kind,
    pub(super) key: String,
    pub(super) step: Step,
    pub(super) after: BTreeSet<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Create,
    /// Deposes the current object, then creates. The old one has this key from then on.
    Replace {
        deposed: u32,
    },
    Update,
    Destroy {
        deposed: Option<u32>,
    },
}

impl Step {
    pub(super) fn destroys(self) -> bool {
        matches!(self, Self::Destroy { .. })
    }
}

impl Terraform {
    pub(super) fn nodes(&mut self, changes: &[Change]) -> Vec<Node> {
        let mut nodes = Vec::new();
        let mut next_deposed = self.next_deposed;
        let mut add = |kind, key: &str, step| {
            nodes.push(Node { kind, key: key.to_owned(), step, after: BTreeSet::new() });
        };
        for Change { kind, key, action } in changes {
            match action {
                Action::Create => add(*kind, key, Step::Create),
                Action::Update => add(*kind, key, Step::Update),
                Action::Replace => {
                    next_deposed += 1;
                    add(*kind, key, Step::Replace { deposed: next_deposed });
                    add(*kind, key, Step::Destroy { deposed: Some(next_deposed) });
                }
                Action::Destroy => add(*kind, key, Step::Destroy { deposed: None }),
                Action::DestroyDeposed(deposed) => {
                    add(*kind, key, Step::Destroy { deposed: Some(*deposed) });
                }
            }
        }
        self.next_deposed = next_deposed;
        let all = nodes.clone();
        for (number, node) in nodes.iter_mut().enumerate() {
            let has_order = self.has_order(node);
            for (other_number, other) in all.iter().enumerate() {
                let comes_before = match (node.step.destroys(), other.step.destroys()) {
                    // A change comes after those of the objects to which it refers.
                    (false, false) => other.kind < node.kind,
                    (false, true) => false,
                    // M2 (a), for each resource that refers to the destroyed object, and (b).
                    (true, false) => other.kind > node.kind || has_order && other.kind < node.kind,
                    // The objects that refer to the destroyed one end first.
                    (true, true) => other.kind > node.kind && self.has_order(other),
                };
                let is_own_replacement = matches!(
                    (node.step, other.step),
                    (Step::Destroy { deposed: Some(old) }, Step::Replace { deposed }) if old == deposed
                );
                if other_number != number && (comes_before || is_own_replacement) {
                    node.after.insert(other_number);
                }
            }
        }
        nodes
    }

    /// Whether a destroy comes before those of the objects to which it refers. M6: a deposed object has the references of the current object, in the
    /// state at the start of the apply.
    fn has_order(&self, node: &Node) -> bool {
        match node.step {
            Step::Destroy { deposed: Some(_) } => self.current(node.kind, &node.key).is_some(),
            _ => true,
        }
    }

    /// The deposed drain resources without a current one: Terraform does not know that they come before their instance.
    pub(super) fn without_order(&self) -> Vec<String> {
        let drains = self.of_kind(Kind::Drain);
        let lost = drains.filter(|it| it.deposed.is_some() && self.current(Kind::Drain, &it.key).is_none());
        lost.filter_map(super::Object::instance).collect()
    }
}
