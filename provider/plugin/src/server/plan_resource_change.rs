//! PlanResourceChange: the planned change. Before a destroy, it can only reject or warn.

use std::sync::Arc;

use grit_proto::tfplugin6 as pb;

use super::{
    Service,
    call::{Operation, Private},
    erased::{Change, Raw},
    registry::ResourceEntry,
};
use crate::{
    problem::{Problem, Problems, texts},
    schema::AttributePath,
    wire::{self, Encoded, PrivateData},
};

impl Service {
    pub(super) async fn plan(
        &self,
        request: pb::plan_resource_change::Request,
    ) -> pb::plan_resource_change::Response {
        if Self::is_first_plan(&request) {
            self.0.walks.saw_plan();
        } else if !request.planned_private.is_empty() {
            self.0.walks.saw_second_plan();
        }
        let private = Self::private(&request);
        let (name, object) = (request.type_name.clone(), private.object.clone());
        let work = plan_change(self.0.registry.resources.find(&name), request);
        let outcome = self.run_call(self.call(Operation::Other).of(private), "plan", &name, work).await;
        let (planned_state, replacing) = outcome
            .value
            .map(|(state, replacing)| (Some(wire::message(state)), replacing))
            .unwrap_or_default();
        pb::plan_resource_change::Response {
            planned_state,
            planned_private: PrivateData { object, kept: outcome.notes.kept }.encode(),
            requires_replace: replacing.iter().map(wire::attribute_path).collect(),
            diagnostics: outcome.diagnostics,
            ..Default::default()
        }
    }

    /// The private data of the object: of its first plan, or of its read with a new identifier.
    fn private(request: &pb::plan_resource_change::Request) -> Private {
        let (prior, planned) = (&request.prior_private, &request.planned_private);
        let is_first = planned.is_empty();
        let PrivateData { object, kept } = PrivateData::decode(if is_first { prior } else { planned });
        let object = if object.is_empty() { uuid::Uuid::new_v4().simple().to_string() } else { object };
        Private { object, kept, is_stored_by_plan: Self::stores_plan(request) }
    }

    fn stores_plan(request: &pb::plan_resource_change::Request) -> bool {
        request.client_capabilities.as_ref().is_some_and(|core| core.store_planned_private)
    }

    /// Whether only a plan makes this request: see [`walks`](super::walks).
    fn is_first_plan(request: &pb::plan_resource_change::Request) -> bool {
        let exists = |state: &Option<pb::DynamicValue>| state.as_ref().is_some_and(|it| !wire::is_null(it));
        wire::has_unknown(request.config.as_ref())
            || (!exists(&request.prior_state) && !request.prior_private.is_empty())
            || Self::stores_plan(request)
                && request.planned_private.is_empty()
                && exists(&request.proposed_new_state)
    }
}

async fn plan_change(
    found: Result<Arc<ResourceEntry>, Problem>,
    request: pb::plan_resource_change::Request,
) -> Result<(Encoded, Vec<AttributePath>), Problems> {
    let resource = &found?.item;
    let change = Change {
        prior: Raw::from_message(request.prior_state, "the prior state")?,
        next: Raw::from_message(request.proposed_new_state, "the proposed state")?,
    };
    match (change.prior.is_null(), change.next.is_null()) {
        (true, false) => Ok((resource.plan_create(&change.next).await?, Vec::new())),
        (false, false) => resource.plan_update(&change).await,
        (false, true) => {
            resource.plan_destroy(&change.prior).await?;
            Ok((Raw::null().into_encoded(), Vec::new()))
        }
        (true, true) => Err(texts::no_change("a plan").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{call::Walk, tests::registry};

    /// The calls of Terraform 1.16 for an object: in the plan, in the apply of a saved plan, and of a core that stores nothing.
    #[tokio::test]
    async fn private_data_records_plan_or_apply() {
        let object = || Some(wire::message(vec![0x80]));
        let null = || Some(wire::null_message());
        let called = async |stores: bool, proposed: Option<pb::DynamicValue>, planned_private: &[u8]| {
            let service = Service::new(registry());
            service.0.walks.configured(false);
            let request = pb::plan_resource_change::Request {
                type_name: "sample_thing".to_owned(),
                prior_state: null(),
                config: proposed.clone(),
                proposed_new_state: proposed,
                planned_private: planned_private.to_vec(),
                client_capabilities: Some(pb::ClientCapabilities {
                    store_planned_private: stores,
                    ..pb::ClientCapabilities::default()
                }),
                ..pb::plan_resource_change::Request::default()
            };
            let planned_private = service.plan(request).await.planned_private;
            (service.0.walks.now(), planned_private)
        };
        let (walk, first) = called(true, object(), b"").await;
        assert_eq!(walk, Walk::Plan);
        assert_eq!(called(true, object(), &first).await, (Walk::Apply, first.clone()));
        assert_ne!(called(true, object(), b"").await.1, first, "another object");
        assert_eq!(called(false, object(), b"").await.0, Walk::Unknown);
        assert_eq!(called(true, null(), b"").await.0, Walk::Unknown, "a destroy");
    }
}
