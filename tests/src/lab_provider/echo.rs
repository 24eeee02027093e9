//! `lab_echo`: a data source that returns its argument.

use async_trait::async_trait;
use grit_plugin::{
    Block, Problems,
    schema::{AttributeType, Schema, Value, computed, required, schema},
};
use serde::{Deserialize, Serialize};

use super::failed;

/// The data source.
pub struct Echo;

/// Its attributes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct State {
    text: Value<String>,
    answer: Value<String>,
}

#[async_trait]
impl Block for Echo {
    type Config = State;
    type Output = State;

    fn schema(&self) -> Schema {
        schema(
            0,
            "Says what it was told.",
            [
                ("text", required(AttributeType::String, "What to say; `fail` and `none` do what they say.")),
                ("answer", computed(AttributeType::String, "What was said.")),
            ],
        )
    }

    async fn run(&self, mut config: State) -> Result<State, Problems> {
        match config.text.as_ref_option().map_or("", String::as_str) {
            "fail" => Err(failed("Asked to fail", "The text is `fail`.")),
            "none" => Err(Problems::default()),
            text => {
                config.answer = Value::Value(text.to_owned());
                Ok(config)
            }
        }
    }
}
