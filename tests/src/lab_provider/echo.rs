//! `lab_echo`: a data source that returns its argument.

use async_trait::async_trait;
use grit_plugin::schema::{
    AttributeType, DataSource, Diagnostics, DiagnosticsExt, Schema, Value, ValueString, computed, required,
    schema,
};
use serde::{Deserialize, Serialize};

/// The data source.
pub struct Echo;

/// Its attributes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct State<'a> {
    #[serde(borrow = "'a")]
    text: ValueString<'a>,
    answer: ValueString<'a>,
}

#[async_trait]
impl DataSource for Echo {
    type State<'a> = State<'a>;

    fn schema(&self, _: &mut Diagnostics) -> Option<Schema> {
        Some(schema(
            0,
            "Says what it was told.",
            [
                ("text", required(AttributeType::String, "What to say; `fail` and `none` do what they say.")),
                ("answer", computed(AttributeType::String, "What was said.")),
            ],
        ))
    }

    async fn read<'a>(&self, diags: &mut Diagnostics, mut config: State<'a>) -> Option<State<'a>> {
        match config.text.as_str() {
            "fail" => {
                diags.fail("Asked to fail", "The text is `fail`.");
                None
            }
            "none" => None,
            text => {
                config.answer = Value::Value(text.to_owned().into());
                Some(config)
            }
        }
    }
}
