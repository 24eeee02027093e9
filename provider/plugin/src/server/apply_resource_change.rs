//! ApplyResourceChange: create, update, destroy; and the state after a failure.
//!
//! Terraform saves the state of the response, also with an error. After a failure:
//!
//! | call    | answer                                                     | what Terraform keeps                                   |
//! |---------|------------------------------------------------------------|--------------------------------------------------------|
//! | create  | the returned state, else the last checkpoint, else null    | that, as tainted; nothing if null                      |
//! | update  | the returned state, else the last checkpoint, else the prior state | that; never the planned state, which would pass for done |
//! | destroy | null                                                       | the object as it was, with private data and with the create_before_destroy mark that a returned state would lose |
//!
//! Unknown values cannot be saved: they are replaced by the prior value, or by null.

use grit_proto::tfplugin6 as pb;

use super::{
    Outcome, Service,
    dynamic::{Change, Raw},
};
use crate::{
    problem::texts,
    schema::{AttributePath, Diagnostics, DiagnosticsExt},
    server::call::{CALL, Operation, Private, call},
    wire::{self, Encoded},
};

impl Service {
    pub(super) async fn apply(
        &self,
        request: pb::apply_resource_change::Request,
    ) -> pb::apply_resource_change::Response {
        self.0.walks.saw_apply();
        let mut diags = Diagnostics::default();
        let (Some(prior), Some(next)) = (
            Raw::from_message(request.prior_state, "the prior state", &mut diags),
            Raw::from_message(request.planned_state, "the planned state", &mut diags),
        ) else {
            return pb::apply_resource_change::Response {
                diagnostics: wire::diagnostics(diags),
                ..Default::default()
            };
        };
        let action = match (prior.is_null(), next.is_null()) {
            (true, false) => Action::Create,
            (false, false) => Action::Update,
            (false, true) => Action::Destroy,
            (true, true) => {
                texts::no_change("an apply").error(AttributePath::root(), &mut diags);
                return pb::apply_resource_change::Response {
                    new_state: Some(wire::null_message()),
                    diagnostics: wire::diagnostics(diags),
                    ..Default::default()
                };
            }
        };
        let name = request.type_name;
        let kept = wire::PrivateData::decode(&request.planned_private).kept;
        let (type_name, change) = (name.clone(), Change { prior: prior.clone(), next });
        let outcome = self
            .run(action.operation(), action.verb(), &name, move |service, diags| {
                let work = async move {
                    let resource = &service.0.catalog.resources.find(&type_name, diags)?.resource;
                    match action {
                        Action::Create => resource.create(diags, &change.next).await,
                        Action::Update => resource.update(diags, &change).await,
                        Action::Destroy => {
                            resource.destroy(diags, &change.prior).await?;
                            Some(Raw::null().into_encoded())
                        }
                    }
                };
                Box::pin(CALL.scope(call().of(Private { kept, ..Private::default() }), work))
            })
            .await;
        let answer = answer(action, outcome, prior);
        let new_identity =
            self.0.catalog.identity(&name).and_then(|it| it.of(&answer.new_state.as_ref()?.msgpack));
        pb::apply_resource_change::Response { new_identity, ..answer }
    }
}

/// The change. With three cases, no other case can lead to a destroy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Create,
    Update,
    Destroy,
}

impl Action {
    fn operation(self) -> Operation {
        match self {
            Self::Create => Operation::Create,
            Self::Update => Operation::Update,
            Self::Destroy => Operation::Destroy,
        }
    }

    fn verb(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Destroy => "destroy",
        }
    }
}

fn answer(action: Action, outcome: Outcome<Encoded>, prior: Raw) -> pb::apply_resource_change::Response {
    let failed = outcome.diags.has_errors();
    let state = match (action, outcome.value.or(outcome.notes.checkpoint)) {
        (_, Some(result)) if !failed => result,
        (Action::Destroy, _) => Raw::null().into_encoded(),
        (Action::Create | Action::Update, Some(partial)) => wire::settle(partial, prior.as_slice()),
        (Action::Create | Action::Update, None) => prior.into_encoded(),
    };
    pb::apply_resource_change::Response {
        new_state: Some(wire::message(state)),
        private: wire::PrivateData::default().encode(),
        diagnostics: wire::diagnostics(outcome.diags),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Problem,
        server::{call::Notes, sample::registry},
        wire::encode,
    };

    const NULL: &[u8] = &[0xc0];

    fn value(text: &str) -> Encoded {
        encode(&text, "a test value", &mut Diagnostics::default()).unwrap()
    }

    fn after(action: Action, result: Option<&str>, checkpoint: Option<&str>, failed: bool) -> Encoded {
        let mut diags = Diagnostics::default();
        if failed {
            Problem::bug("a test").error(AttributePath::root(), &mut diags);
        }
        let notes = Notes { checkpoint: checkpoint.map(value), ..Notes::default() };
        let message = pb::DynamicValue { msgpack: value("prior"), json: Vec::new() };
        let prior = if action == Action::Create { None } else { Some(message) };
        let prior = Raw::from_message(prior, "", &mut Diagnostics::default()).unwrap();
        let outcome = Outcome { value: result.map(value), diags, notes };
        answer(action, outcome, prior).new_state.unwrap().msgpack
    }

    #[test]
    fn result_without_errors_is_returned() {
        for action in [Action::Create, Action::Update] {
            assert_eq!(after(action, Some("new"), Some("saved"), false), value("new"));
        }
    }

    #[test]
    fn failed_create_keeps_partial_state_or_checkpoint() {
        let create = |result, checkpoint| after(Action::Create, result, checkpoint, true);
        assert_eq!(create(Some("partial"), Some("saved")), value("partial"));
        assert_eq!(create(None, Some("saved")), value("saved"));
        assert_eq!(create(None, None), NULL);
    }

    #[test]
    fn failed_update_keeps_result_checkpoint_or_prior_state() {
        let update = |result, checkpoint| after(Action::Update, result, checkpoint, true);
        assert_eq!(update(Some("partial"), Some("saved")), value("partial"));
        assert_eq!(update(None, Some("saved")), value("saved"));
        assert_eq!(update(None, None), value("prior"));
    }

    #[test]
    fn failed_destroy_returns_null_state() {
        for result in [None, Some("state")] {
            assert_eq!(after(Action::Destroy, result, Some("saved"), true), NULL);
        }
    }

    #[tokio::test]
    async fn change_from_null_to_null_is_rejected() {
        let service = Service::new(registry());
        let request = pb::apply_resource_change::Request::default();
        let answer = service.apply(request).await;
        assert_eq!(answer.diagnostics.len(), 1);
        assert_eq!(answer.diagnostics[0].summary, "Provider bug");
        assert_eq!(answer.new_state.unwrap().msgpack, NULL);
    }
}
