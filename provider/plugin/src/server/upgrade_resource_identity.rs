//! UpgradeResourceIdentity: the identity of a stored object, before the object is read or planned.

use grit_proto::tfplugin6 as pb;

use super::{Service, stored_state};
use crate::{
    problem::{Problems, texts},
    wire::Identity,
};

impl Service {
    pub(super) async fn upgrade_identity(
        &self,
        request: pb::upgrade_resource_identity::Request,
    ) -> pb::upgrade_resource_identity::Response {
        let pb::upgrade_resource_identity::Request { type_name, version, raw_identity } = request;
        let found = self.0.registry.resources.find(&type_name);
        let name = type_name.clone();
        let work = async move {
            let stored = stored_state::parse(&raw_identity.unwrap_or_default(), &name)?;
            let entry = found?;
            let current = entry.identity.as_ref().filter(|_| version == Identity::VERSION);
            let current = current.ok_or_else(|| texts::state_version(&name, version))?;
            let upgraded = current.upgrade(&stored);
            Ok::<_, Problems>(
                upgraded.ok_or_else(|| texts::stored_state_invalid(&name, "its identity is incomplete"))?,
            )
        };
        let outcome = self.run("upgrade the identity", &type_name, work).await;
        pb::upgrade_resource_identity::Response {
            upgraded_identity: outcome.value,
            diagnostics: outcome.diagnostics,
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
        Service::new(crate::server::tests::registry()).upgrade_identity(request).await
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
