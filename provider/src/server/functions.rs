//! GetFunctions and CallFunction.

use grit_proto::tfplugin6 as pb;

use super::Service;
use crate::{
    call::Operation,
    schema::FunctionError,
    wire::{self, Raw},
};

impl Service {
    pub(super) fn functions(&self) -> pb::get_functions::Response {
        let functions = self.0.catalog.functions();
        pb::get_functions::Response {
            functions: functions.map(|(name, entry)| (name.to_owned(), entry.message.clone())).collect(),
            diagnostics: Vec::new(),
        }
    }

    /// Terraform calls functions at any time, also before it configures the provider.
    pub(super) async fn call_function(
        &self,
        request: pb::call_function::Request,
    ) -> pb::call_function::Response {
        let name = request.name.clone();
        let outcome = self
            .run(Operation::Other, "call", &name, move |service, diags| {
                Box::pin(async move {
                    let entry = service.0.catalog.function(&request.name, diags)?;
                    let arguments: Option<Vec<_>> = request
                        .arguments
                        .into_iter()
                        .map(|argument| Raw::from_message(Some(argument), "an argument", diags))
                        .collect();
                    Some(entry.function.call(&arguments?))
                })
            })
            .await;
        let result = outcome.value.unwrap_or_else(|| {
            let details = outcome.diags.errors.iter().map(|error| error.detail.as_ref());
            Err(FunctionError { text: details.collect::<Vec<_>>().join("\n\n"), argument: None })
        });
        match result {
            Ok(value) => pb::call_function::Response { result: Some(wire::message(value)), error: None },
            Err(error) => {
                pb::call_function::Response { result: None, error: Some(wire::function_error(error)) }
            }
        }
    }
}
