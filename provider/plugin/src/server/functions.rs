//! GetFunctions and CallFunction.

use grit_proto::tfplugin6 as pb;

use super::{Service, erased::Raw};
use crate::{
    problem::{FunctionError, Problems},
    wire,
};

impl Service {
    pub(super) fn functions(&self) -> pb::get_functions::Response {
        pb::get_functions::Response {
            functions: self.0.registry.functions.map(|name, it| (name, wire::function(&it.schema()))),
            diagnostics: Vec::new(),
        }
    }

    /// Terraform calls functions at any time, also before it configures the provider.
    pub(super) async fn call_function(
        &self,
        request: pb::call_function::Request,
    ) -> pb::call_function::Response {
        let function = self.0.registry.functions.find(&request.name);
        let work = async move {
            let argument = |argument| Raw::from_message(Some(argument), "an argument");
            let arguments: Vec<_> = request.arguments.into_iter().map(argument).collect::<Result<_, _>>()?;
            Ok::<_, Problems>(function?.call(&arguments))
        };
        let outcome = self.run("call", &request.name, work).await;
        let result = outcome.value.unwrap_or_else(|| {
            let details: Vec<_> = outcome.diagnostics.into_iter().map(|error| error.detail).collect();
            Err(FunctionError { text: details.join("\n\n"), argument: None })
        });
        match result {
            Ok(value) => pb::call_function::Response { result: Some(wire::message(value)), error: None },
            Err(error) => {
                pb::call_function::Response { result: None, error: Some(wire::function_error(error)) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        contract::Function,
        schema::{AttributeType, FunctionSchema, Parameter, Value},
        server::tests::registry,
    };

    /// Returns its argument, or fails as its argument names.
    struct Echo;

    impl Function for Echo {
        type Arguments = (String,);
        type Output = String;

        fn schema(&self) -> FunctionSchema {
            let text = Parameter {
                name: "text",
                kind: AttributeType::String,
                allow_unknown: false,
                description: "",
            };
            FunctionSchema {
                summary: "",
                description: "",
                parameters: vec![text],
                variadic: None,
                returns: AttributeType::String,
            }
        }

        fn call(&self, (text,): (String,)) -> Result<Value<String>, FunctionError> {
            match text.as_str() {
                "fail" => Err(FunctionError { text: "failed\u{1b}[31m".to_owned(), argument: Some(0) }),
                "panic" => panic!("in a function"),
                _ => Ok(Value::Value(text)),
            }
        }
    }

    async fn call(name: &str, arguments: &[&str]) -> Result<String, pb::FunctionError> {
        let service = Service::new(registry().function("echo", Echo));
        let encoded = |text: &&str| wire::message(rmp_serde::to_vec_named(text).unwrap());
        let arguments = arguments.iter().map(encoded).collect();
        let answer = service.call_function(pb::call_function::Request { name: name.into(), arguments }).await;
        match answer.error {
            Some(error) => Err(error),
            None => Ok(rmp_serde::from_slice(&answer.result.unwrap().msgpack).unwrap()),
        }
    }

    #[tokio::test]
    async fn function_returns_value_or_typed_error() {
        assert_eq!(call("echo", &["text"]).await, Ok("text".to_owned()));
        let error = call("echo", &["fail"]).await.unwrap_err();
        assert_eq!((error.text.as_str(), error.function_argument), ("failed\\u{1b}[31m", Some(0)));
    }

    #[tokio::test]
    async fn panic_and_wrong_call_are_function_errors() {
        for (name, arguments, part) in [
            ("echo", &["panic"][..], "The call of echo panicked"),
            ("echo", &["one", "two"], "cannot decode the arguments"),
            ("nothing", &[], "no function `nothing`"),
        ] {
            let error = call(name, arguments).await.unwrap_err();
            assert!(error.text.contains(part), "{name}: {}", error.text);
            assert_eq!(error.function_argument, None);
        }
    }
}
