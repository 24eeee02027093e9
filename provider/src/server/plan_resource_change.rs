//! PlanResourceChange: the planned change. Before a destroy, it can only reject or warn.

use grit_proto::tfplugin6 as pb;

use super::{Service, dynamic::Change};
use crate::{
    call::Operation,
    explain::protocol,
    schema::{AttributePath, Diagnostics},
    wire::{self, Encoded, Raw},
};

impl Service {
    pub(super) async fn plan(
        &self,
        request: pb::plan_resource_change::Request,
    ) -> pb::plan_resource_change::Response {
        if Self::is_first_plan(&request) {
            self.0.walks.saw_plan();
        }
        let name = request.type_name.clone();
        let outcome = self
            .run(Operation::Other, "plan", &name, move |service, diags| {
                Box::pin(service.plan_change(request, diags))
            })
            .await;
        let planned = outcome
            .value
            .map(|planned| (Some(wire::message(planned.state)), planned.private, planned.replacing));
        let (planned_state, planned_private, replacing) = planned.unwrap_or_default();
        let planned_identity =
            self.0.catalog.identity(&name).and_then(|it| it.of(&planned_state.as_ref()?.msgpack));
        pb::plan_resource_change::Response {
            planned_identity,
            planned_state,
            planned_private,
            requires_replace: replacing.iter().map(wire::attribute_path).collect(),
            diagnostics: wire::diagnostics(outcome.diags),
            ..Default::default()
        }
    }

    /// Whether only a plan makes this request: see [`walks`](super::walks).
    fn is_first_plan(request: &pb::plan_resource_change::Request) -> bool {
        let prior = request.prior_state.as_ref().is_some_and(|prior| !wire::is_null(prior));
        wire::has_unknown(request.config.as_ref()) || (!prior && !request.prior_private.is_empty())
    }

    async fn plan_change(
        &self,
        request: pb::plan_resource_change::Request,
        diags: &mut Diagnostics,
    ) -> Option<Planned> {
        let entry = self.0.catalog.resource(&request.type_name, diags)?;
        let change = Change {
            prior: Raw::from_message(request.prior_state, "the prior state", diags)?,
            next: Raw::from_message(request.proposed_new_state, "the proposed state", diags)?,
            config: Raw::from_message(request.config, "the configuration", diags)?,
            private: Raw::private(request.prior_private),
            meta: Raw::from_message(request.provider_meta, "provider_meta", diags)?,
        };
        let ((state, private), replacing) = match (change.prior.is_null(), change.next.is_null()) {
            (true, false) => (entry.resource.plan_create(diags, &change).await?, Vec::new()),
            (false, false) => entry.resource.plan_update(diags, &change).await?,
            (false, true) => {
                let private = entry.resource.plan_destroy(diags, &change).await?;
                ((Raw::null().into_encoded(), private), Vec::new())
            }
            (true, true) => {
                protocol::no_change("a plan").error(AttributePath::root(), diags);
                return None;
            }
        };
        Some(Planned { state, private, replacing })
    }
}

struct Planned {
    state: Encoded,
    private: Encoded,
    replacing: Vec<AttributePath>,
}
