//! UpgradeResourceState: Terraform sends each stored object before it reads, plans or destroys it.

use grit_proto::tfplugin6 as pb;

use super::{Service, stored_state};
use crate::{
    problem::{Problems, texts},
    wire,
};

impl Service {
    pub(super) async fn upgrade(
        &self,
        request: pb::upgrade_resource_state::Request,
    ) -> pb::upgrade_resource_state::Response {
        let pb::upgrade_resource_state::Request { type_name, version, raw_state } = request;
        let found = self.0.registry.resources.find(&type_name);
        let name = type_name.clone();
        let work = async move {
            let (entry, stored) = (found?, raw_state.unwrap_or_default());
            let mut state = stored_state::parse(&stored, &name)?;
            if version != entry.schema().version {
                return Err(texts::state_version(&name, version).into());
            }
            let pruned = wire::prune_json(&mut state, entry.schema());
            entry.item.observe_stored_state(&state);
            // Unchanged if possible: parsing loses digits of long numbers.
            Ok::<_, Problems>(if pruned {
                stored_state::message(&state)
            } else {
                stored_state::unchanged(stored)
            })
        };
        let outcome = self.run("upgrade", &type_name, work).await;
        pb::upgrade_resource_state::Response {
            upgraded_state: outcome.value,
            diagnostics: outcome.diagnostics,
        }
    }
}
