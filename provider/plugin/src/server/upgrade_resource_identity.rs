//! UpgradeResourceIdentity: the identity of a stored object, before the object is read or planned.

use grit_proto::tfplugin6 as pb;

use super::{Service, stored_state};
use crate::{
    problem::texts,
    schema::AttributePath,
    server::call::Operation,
    wire::{self, Identity},
};

impl Service {
    pub(super) async fn upgrade_identity(
        &self,
        request: pb::upgrade_resource_identity::Request,
    ) -> pb::upgrade_resource_identity::Response {
        let name = request.type_name.clone();
        let outcome = self
            .run(Operation::Other, "upgrade the identity", &name, move |service, diags| {
                Box::pin(async move {
                    let stored = request.raw_identity.unwrap_or_default();
                    let json = stored_state::parse(&stored, &request.type_name, diags)?;
                    let identity = service.0.catalog.identity(&request.type_name);
                    let current = identity.filter(|_| request.version == Identity::VERSION);
                    let Some(current) = current else {
                        texts::state_version(&request.type_name, request.version)
                            .error(AttributePath::root(), diags);
                        return None;
                    };
                    let upgraded = current.upgrade(&json);
                    if upgraded.is_none() {
                        texts::stored_state_invalid(&request.type_name, "its identity is incomplete")
                            .error(AttributePath::root(), diags);
                    }
                    upgraded
                })
            })
            .await;
        pb::upgrade_resource_identity::Response {
            upgraded_identity: outcome.value,
            diagnostics: wire::diagnostics(outcome.diags),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn upgraded(type_name: &str, version: i64, json: &str) -> pb::upgrade_resource_identity::Response {
        let request = pb::upgrade_resource_identity::Request {
            type_name: type_name.to_owned(),
            version,
            raw_identity: Some(pb::RawState { json: json.into(), ..Default::default() }),
        };
        Service::new(crate::server::sample::registry()).upgrade_identity(request).await
    }

    #[tokio::test]
    async fn stored_identity_is_returned() {
        let response = upgraded("sample_thing", 0, r#"{"name": "i-1"}"#).await;
        assert_eq!(response.diagnostics, []);
        assert!(response.upgraded_identity.is_some());
    }

    #[tokio::test]
    async fn unusable_identity_is_an_error() {
        for (type_name, version, json, title) in [
            ("sample_thing", 7, r#"{"name": "i-1"}"#, "Unsupported state version"),
            ("sample_plain", 0, r#"{"name": "i-1"}"#, "Unsupported state version"),
            ("sample_thing", 0, r#"{"other": "i-1"}"#, "Invalid stored state"),
            ("sample_thing", 0, "", "Invalid stored state"),
        ] {
            let response = upgraded(type_name, version, json).await;
            assert_eq!(response.upgraded_identity, None, "{type_name} {version} {json}");
            assert_eq!(response.diagnostics[0].summary, title, "{type_name} {version} {json}");
        }
    }
}
