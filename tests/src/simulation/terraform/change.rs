//! One step of an apply, and what it changes in the state.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt as _};

use super::{
    Config, Kind, Object, Terraform,
    calls::{Errors, Process},
    graph::{Node, Step},
};
use crate::{dynamic::Dynamic, simulation::origin::Origin};

/// What a step has changed in the state.
pub(super) enum Stored {
    Object { value: Dynamic, private: Vec<u8>, errors: Errors },
    Destroyed,
    Failed(Errors),
}

impl Terraform {
    /// Starts a step. Returns it with the object that it changes.
    pub(super) fn start(
        &mut self,
        process: &Process,
        origin: &Arc<Origin>,
        config: &Config,
        node: &Node,
    ) -> (Option<Object>, BoxFuture<'static, Stored>) {
        let (kind, key, step, process) = (node.kind, node.key.clone(), node.step, process.clone());
        if let Step::Replace { deposed } = step {
            for object in &mut self.state {
                if object.kind == kind && object.key == key && object.deposed.is_none() {
                    object.deposed = Some(deposed);
                }
            }
        }
        let prior = match step {
            Step::Create | Step::Replace { .. } => None,
            Step::Update => self.current(kind, &key).cloned(),
            Step::Destroy { deposed } => {
                let mut objects =
                    self.of_kind(kind).filter(|object| object.key == key && object.deposed == deposed);
                objects.next().cloned()
            }
        };
        if kind == Kind::Instance {
            let work = self.start_instance(config, &key, step, prior.clone());
            return (prior, work);
        }
        if kind == Kind::Health && !step.destroys() {
            let current = self
                .of_kind(Kind::Instance)
                .filter(|object| object.deposed.is_none() && config.managers.contains_key(&object.key));
            let managers = current.filter_map(|object| Some((object.instance()?, object.text("address")?)));
            origin.check_begins(managers.collect(), config.needs());
        }
        let instance = |key: &str, name: &str| self.value_of(Kind::Instance, key, name);
        let drain = |key: &str, name: &str| self.value_of(Kind::Drain, key, name);
        let config = match step {
            Step::Destroy { .. } => Dynamic::Null,
            _ => config.value(kind, &key, instance, drain),
        };
        if kind == Kind::Health {
            self.unproved = prior.as_ref().filter(|prior| prior.differs(&config)).map(|_| config.clone());
        }
        let object = prior.clone();
        let work = async move {
            let result = change(&process, kind, step, &config, object.as_ref()).await;
            result.unwrap_or_else(Stored::Failed)
        };
        (prior, work.boxed())
    }

    fn value_of(&self, kind: Kind, key: &str, name: &str) -> Dynamic {
        self.current(kind, key).map_or(Dynamic::Null, |object| super::member(&object.value, name).clone())
    }

    /// Returns the errors of the step.
    pub(super) fn store(&mut self, node: &Node, result: Stored) -> Errors {
        let (kind, key) = (node.kind, &node.key);
        let is_this =
            |object: &Object, deposed| object.kind == kind && object.key == *key && object.deposed == deposed;
        let (value, private, errors) = match result {
            Stored::Destroyed => {
                let deposed = match node.step {
                    Step::Destroy { deposed } => deposed,
                    _ => None,
                };
                if let Some(at) = self.state.iter().position(|object| is_this(object, deposed)) {
                    self.state.remove(at);
                }
                return Errors::new();
            }
            Stored::Failed(errors) => {
                self.restore_deposed(node);
                return errors;
            }
            Stored::Object { value, private, errors } => (value, private, errors),
        };
        if kind == Kind::Health && errors.is_empty() {
            self.unproved = None;
        }
        if value == Dynamic::Null {
            self.restore_deposed(node);
            return errors;
        }
        if kind == Kind::Drain
            && let Dynamic::Text(id) = super::member(&value, "instance_id")
        {
            self.drained.insert(id.clone());
        }
        // Only creates taint.
        let is_tainted = !errors.is_empty() && matches!(node.step, Step::Create | Step::Replace { .. });
        match self.state.iter().position(|object| is_this(object, None)) {
            Some(at) => {
                let object = &mut self.state[at];
                (object.value, object.private) = (value, private);
                object.is_tainted |= is_tainted;
            }
            None => {
                self.state.push(Object { kind, key: key.clone(), deposed: None, is_tainted, value, private });
            }
        }
        errors
    }

    /// A replacement whose create has failed: the deposed object is the current one again.
    pub(super) fn restore_deposed(&mut self, node: &Node) {
        if let Step::Replace { deposed } = node.step
            && self.current(node.kind, &node.key).is_none()
            && let Some(object) = self.state.iter_mut().find(|object| {
                object.kind == node.kind && object.key == node.key && object.deposed == Some(deposed)
            })
        {
            object.deposed = None;
        }
    }
}

async fn change(
    process: &Process,
    kind: Kind,
    step: Step,
    config: &Dynamic,
    prior: Option<&Object>,
) -> Result<Stored, Errors> {
    let null = Dynamic::Null;
    let (value, private) = prior.map_or((&null, &[][..]), |object| (&object.value, &object.private));
    if prior.is_some() {
        process.upgrade(kind, value).await?;
    } else if step.destroys() {
        return Ok(Stored::Destroyed);
    }
    if !step.destroys() {
        process.validate(kind, config).await?;
    }
    let planned = process.plan(kind, config, value, private).await?;
    let applied = process.apply(kind, config, value, planned).await;
    Ok(match (step.destroys(), applied.errors.is_empty()) {
        (true, true) => Stored::Destroyed,
        // Null and an error: Terraform keeps the object with its flag and its dependencies.
        (true, false) => Stored::Failed(applied.errors),
        (false, _) => {
            Stored::Object { value: applied.value, private: applied.private, errors: applied.errors }
        }
    })
}
