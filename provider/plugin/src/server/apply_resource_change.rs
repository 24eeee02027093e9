//! ApplyResourceChange: create, update, destroy; and the state after a failure.
//!
//! Terraform saves the state of the response, also with an error. After a failure:
//!
//! | call    | answer                                                     | what Terraform keeps                                   |
//! |---------|------------------------------------------------------------|--------------------------------------------------------|
//! | create  | the last checkpoint, else null                             | that, as tainted; nothing if null                      |
//! | update  | the last checkpoint, else the prior state                  | that; never the planned state, which would pass for done |
//! | destroy | null                                                       | the object as it was, with private data and with the create_before_destroy mark that a returned state would lose |
//!
//! Unknown values cannot be saved: they are replaced by the prior value, or by null.

use grit_proto::tfplugin6 as pb;

use super::{
    Outcome, Service,
    call::{Operation, Private},
    erased::{Change, Raw},
};
use crate::{
    problem::{Problems, texts},
    wire::{self, Encoded},
};

impl Service {
    pub(super) async fn apply(
        &self,
        request: pb::apply_resource_change::Request,
    ) -> pb::apply_resource_change::Response {
        self.0.walks.saw_apply();
        let change = Raw::from_message(request.prior_state, "the prior state").and_then(|prior| {
            Ok(Change { prior, next: Raw::from_message(request.planned_state, "the planned state")? })
        });
        let failed = |problem, new_state| pb::apply_resource_change::Response {
            new_state,
            diagnostics: wire::diagnostics(Problems::from(problem), Problems::default()),
            ..Default::default()
        };
        let change = match change {
            Ok(change) => change,
            Err(problem) => return failed(problem, None),
        };
        let action = match (change.prior.is_null(), change.next.is_null()) {
            (true, false) => Action::Create,
            (false, false) => Action::Update,
            (false, true) => Action::Destroy,
            (true, true) => return failed(texts::no_change("an apply"), Some(wire::null_message())),
        };
        let (name, prior) = (request.type_name, change.prior.clone());
        let kept = wire::PrivateData::decode(&request.planned_private).kept;
        let call = self.call(action.operation()).of(Private { kept, ..Private::default() });
        let found = self.0.registry.resources.find(&name);
        let work = async move {
            let resource = &found?.item;
            match action {
                Action::Create => resource.create(&change.next).await,
                Action::Update => resource.update(&change).await,
                Action::Destroy => {
                    resource.destroy(&change.prior).await?;
                    Ok(Raw::null().into_encoded())
                }
            }
        };
        let outcome = self.run_call(call, action.verb(), &name, work).await;
        answer(action, outcome, prior)
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
    let state = match (action, outcome.value, outcome.notes.checkpoint) {
        (_, Some(result), _) => result,
        (Action::Destroy, None, _) => Raw::null().into_encoded(),
        (Action::Create | Action::Update, None, Some(partial)) => wire::settle(partial, prior.as_slice()),
        (Action::Create | Action::Update, None, None) => prior.into_encoded(),
    };
    pb::apply_resource_change::Response {
        new_state: Some(wire::message(state)),
        private: wire::PrivateData::default().encode(),
        diagnostics: outcome.diagnostics,
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        server::{call::Notes, tests::registry},
        wire::encode,
    };

    const NULL: &[u8] = &[0xc0];

    fn value(text: &str) -> Encoded {
        encode(&text, "a test value").unwrap()
    }

    fn after(action: Action, result: Option<&str>, checkpoint: Option<&str>) -> Encoded {
        let notes = Notes { checkpoint: checkpoint.map(value), ..Notes::default() };
        let message = pb::DynamicValue { msgpack: value("prior"), json: Vec::new() };
        let prior = if action == Action::Create { None } else { Some(message) };
        let prior = Raw::from_message(prior, "").unwrap();
        let outcome = Outcome { value: result.map(value), diagnostics: Vec::new(), notes };
        answer(action, outcome, prior).new_state.unwrap().msgpack
    }

    #[test]
    fn result_without_errors_is_returned() {
        for action in [Action::Create, Action::Update] {
            assert_eq!(after(action, Some("new"), Some("saved")), value("new"));
        }
    }

    #[test]
    fn failed_create_keeps_checkpoint() {
        assert_eq!(after(Action::Create, None, Some("saved")), value("saved"));
        assert_eq!(after(Action::Create, None, None), NULL);
    }

    #[test]
    fn failed_update_keeps_checkpoint_or_prior_state() {
        assert_eq!(after(Action::Update, None, Some("saved")), value("saved"));
        assert_eq!(after(Action::Update, None, None), value("prior"));
    }

    #[test]
    fn failed_destroy_returns_null_state() {
        assert_eq!(after(Action::Destroy, None, Some("saved")), NULL);
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
