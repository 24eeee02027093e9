//! Actions: each attribute set, changed and null; all of them unknown at plan; and invoked.

use std::fmt::Write as _;

use serde_json::{Map, Value as Json, json};

use super::{Bench, Phase, attributes::Attribute};

const TYPES: [&str; 1] = ["grit_drain"];

/// The runner of the host has exited, which `grit_drain` finds.
pub(super) fn each_attribute_of_the_actions_is_accepted(bench: &Bench) {
    let schemas = &bench.schema["action_schemas"];
    if !schemas.is_object() {
        return;
    }
    let types: Vec<_> = schemas.as_object().unwrap().keys().collect();
    assert_eq!(types.len(), TYPES.len(), "{types:?}");

    // Each attribute with each value.
    let mut blocks = Map::new();
    for object in bench.objects("action") {
        for phase in [Phase::Create, Phase::Change, Phase::Null] {
            let name = format!("{}-{phase:?}", object.attribute.block());
            let of_type = blocks.entry(object.attribute.of.clone()).or_insert(json!({}));
            of_type[name] = json!({ "config": object.configuration(phase) });
        }
    }
    // All attributes, and the required ones only.
    let required = Attribute::all(schemas).into_iter().filter(|it| it.required && !it.path.contains('.'));
    for attribute in required {
        let all = bench.values.base(&attribute.of, "all");
        let least = json!({ attribute.path.clone(): attribute.of(&all) });
        blocks[&attribute.of]["all"] = json!({ "config": all });
        blocks[&attribute.of]["least"] = json!({ "config": least });
    }
    bench.write("objects", &json!({ "action": blocks }));
    bench.workspace.validate().unwrap().succeeded();
    for name in ["all", "least"] {
        for of in TYPES {
            let invoke = format!("-invoke=action.{of}.{name}");
            bench.workspace.run(["apply", "-json", "-auto-approve", &invoke]).unwrap().succeeded();
        }
    }

    // Unknown at plan, known when Terraform invokes it.
    let mut text = String::new();
    for of in TYPES {
        let all = bench.values.base(of, "all");
        writeln!(text, "action \"{of}\" \"unknown\" {{\n  config {{").unwrap();
        for name in all.as_object().unwrap().keys() {
            writeln!(text, "    {name} = terraform_data.values.output.{of}.{name}").unwrap();
        }
        writeln!(text, "  }}\n}}").unwrap();
    }
    let actions = TYPES.map(|of| format!("action.{of}.unknown")).join(", ");
    writeln!(
        text,
        "resource \"terraform_data\" \"trigger\" {{\n  depends_on = [terraform_data.values]\n  lifecycle {{\n    action_trigger {{\n      events  = [after_create]\n      \
         actions = [{actions}]\n    }}\n  }}\n}}"
    )
    .unwrap();
    let values: Map<String, Json> =
        TYPES.iter().map(|of| ((*of).to_owned(), bench.values.base(of, "all"))).collect();
    bench.write("objects", &json!({ "resource": { "terraform_data": { "values": { "input": values } } } }));
    bench.workspace.write("actions.tf", &text).unwrap();
    bench.workspace.apply().unwrap().succeeded();
}
