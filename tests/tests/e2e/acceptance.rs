//! Every attribute of every resource, data source and action: create, plan without a change, change in place, null, unknown at plan,
//! wrong value, destroy.
//!
//! The attributes come from the schema, and their values from [`table`]: a new attribute without a row fails. Each attribute has an object
//! of its type in which only this attribute varies, and all objects share each apply.

mod attributes;
mod invalid;
mod invoked;
mod table;

use std::{fs, path::Path, time::Duration};

use grit_tests::{
    lab::{Lab, cloud::Instance},
    rollout::PATIENCE,
    terraform::{Workspace, core, terraform},
};
use serde_json::{Map, Value as Json, json};

use attributes::Attribute;
use table::{NULL_HERE, Row, Values};

/// The configurations of all objects.
struct Bench {
    workspace: Workspace,
    values: Values,
    schema: Json,
}

/// What the attribute of an object is set to, in the order of the applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Create,
    Change,
    Null,
    Unknown,
}

/// An object in which one attribute varies.
struct Object {
    kind: &'static str,
    attribute: Attribute,
    row: Row,
    base: Json,
}

impl Bench {
    /// `create`: the host with this name. `key`: the file of a private key.
    fn new(create: impl Fn(&str) -> Instance + Copy, key: &Path) -> Self {
        // Many drain resources of different instances have one host here, which the check of plans would refuse.
        let workspace = Workspace::new(&["grit"]).unwrap().env("GRIT_PLAN_CHECK", "off");
        let deployments = ["old", "older"].map(|name| workspace.path().join(name).display().to_string());
        let values = Values::new(create, deployments, terraform().unwrap().display().to_string());
        for (number, directory) in values.deployments.iter().enumerate() {
            fs::create_dir(directory).unwrap();
            fs::write(format!("{directory}/terraform.tfstate"), values.state(number)).unwrap();
        }
        let mut bench = Self { workspace, values, schema: Json::Null };
        let ssh = json!({
            "username": bench.values.kept[0].username, "private_key_path": key,
            "host_keys": bench.values.host_keys(),
        });
        bench.write(
            "provider",
            &json!({
                "terraform": { "required_providers": { "grit": { "source": "runner-tools/grit" } } },
                "provider": { "grit": { "ssh": ssh } },
            }),
        );
        let run = bench.workspace.run(["providers", "schema", "-json"]).unwrap().succeeded();
        let all: Json = serde_json::from_str(&run.stdout).unwrap();
        bench.schema = all["provider_schemas"][format!("{}/runner-tools/grit", core().registry())].clone();
        bench
    }

    fn write(&self, file: &str, configuration: &Json) {
        self.workspace.write(&format!("{file}.tf.json"), &configuration.to_string()).unwrap();
    }

    /// An object for each attribute that a configuration can set.
    fn objects(&self, kind: &'static str) -> Vec<Object> {
        let schemas =
            if kind == "data" { "data_source_schemas".to_owned() } else { format!("{kind}_schemas") };
        let attributes = Attribute::all(&self.schema[schemas]);
        let settable: Vec<_> = attributes.into_iter().filter(|attribute| !attribute.computed).collect();
        let missing: Vec<_> = settable
            .iter()
            .filter(|attribute| self.values.row(attribute).is_none())
            .map(|attribute| format!("{}.{}", attribute.of, attribute.path))
            .collect();
        assert!(missing.is_empty(), "add rows to the table in acceptance/table.rs for: {missing:#?}");
        let object = |attribute: Attribute| {
            let row = self.values.row(&attribute).unwrap();
            let mut base = self.values.base(&attribute.of, &attribute.block());
            for name in row.without {
                base.as_object_mut().unwrap().remove(*name);
            }
            base.as_object_mut()
                .unwrap()
                .extend(row.with.iter().map(|(name, it)| ((*name).to_owned(), it.clone())));
            assert!(
                !attribute.of(&base).is_null(),
                "no value of {}.{} in the table",
                attribute.of,
                attribute.path
            );
            Object { kind, attribute, row, base }
        };
        settable.into_iter().map(object).collect()
    }
}

/// Two jobs succeed on each kept host, and the other hosts get none.
fn finish_jobs(lab: &Lab) {
    let queue = lab.queue();
    let names = ["kept-1", "kept-2", "drained", "retired-1", "retired-2"];
    for name in names {
        queue.pause_token(&format!("glrt-{name}"));
    }
    for name in &names[..2] {
        queue.resume_token(&format!("glrt-{name}"));
        queue.submit(2, Duration::ZERO);
        queue.wait_all_ended(PATIENCE).unwrap();
        queue.pause_token(&format!("glrt-{name}"));
    }
}

fn signals(lab: &Lab, host: &str) -> Vec<String> {
    lab.events().signals(Some(host))
}

impl Object {
    fn address(&self) -> String {
        let prefix = if self.kind == "data" { "data." } else { "" };
        format!("{prefix}{}.{}", self.attribute.of, self.attribute.block())
    }

    /// The value of the attribute after the apply of a phase.
    fn wanted(&self, phase: Phase) -> Json {
        let can_be_null = !self.attribute.required && !self.row.not_null;
        match phase {
            Phase::Change => self.row.other.clone(),
            Phase::Null if can_be_null => Json::Null,
            Phase::Create | Phase::Null | Phase::Unknown => self.attribute.of(&self.base),
        }
    }

    fn configuration(&self, phase: Phase) -> Json {
        let value = match phase {
            Phase::Unknown => json!(format!("${{terraform_data.unknown.output[\"{}\"]}}", self.address())),
            phase => self.wanted(phase),
        };
        self.attribute.with(&self.base, value)
    }

    /// The planned change.
    fn action(&self, phase: Phase) -> &'static [&'static str] {
        match (self.kind, phase) {
            ("data", Phase::Unknown) => &["read"],
            ("data", _) => &[],
            (_, Phase::Create) => &["create"],
            _ if self.row.replaces => &["delete", "create"],
            _ => &["update"],
        }
    }
}

fn write(bench: &Bench, objects: &[Object], phase: Phase) {
    let mut blocks = Map::new();
    for object in objects {
        let kind = blocks.entry(object.kind).or_insert(json!({}));
        kind[&object.attribute.of][object.attribute.block()] = object.configuration(phase);
    }
    if phase == Phase::Unknown {
        let values: Map<_, _> =
            objects.iter().map(|object| (object.address(), object.wanted(phase))).collect();
        blocks["resource"]["terraform_data"] = json!({ "unknown": { "input": values } });
    }
    bench.write("objects", &blocks.into());
}

/// Applies a phase, and compares the plan and the state with the table.
fn apply(bench: &Bench, objects: &[Object], phase: Phase) {
    write(bench, objects, phase);
    if phase == Phase::Create {
        bench.workspace.apply().unwrap().succeeded();
    } else {
        bench.workspace.plan().unwrap().succeeded();
        assert_plan(bench, objects, phase);
        bench.workspace.run(["apply", "-json", "plan"]).unwrap().succeeded();
    }
    let state = bench.workspace.state().unwrap();
    let mut wrong = Vec::new();
    for object in objects {
        let found = state.at(&object.address());
        let [found] = found.as_slice() else { panic!("{phase:?}: not one {}: {found:?}", object.address()) };
        let (value, wanted) = (object.attribute.of(&found.attributes), object.wanted(phase));
        if !contains(&value, &wanted) {
            wrong.push(format!("{}: {value}, not {wanted}", object.address()));
        }
    }
    assert!(wrong.is_empty(), "state of phase {phase:?}: {wrong:#?}");
}

/// Each object has the change of the table, and an unknown value is unknown.
fn assert_plan(bench: &Bench, objects: &[Object], phase: Phase) {
    let plan = bench.workspace.show(Some("plan")).unwrap();
    let changes = plan["resource_changes"].as_array().unwrap();
    let mut wrong = Vec::new();
    for object in objects {
        let address = object.address();
        let change = changes.iter().find(|change| change["address"] == address.as_str());
        let actions = change.map_or(json!([]), |change| change["change"]["actions"].clone());
        if actions != json!(object.action(phase)) {
            wrong.push(format!("{address}: {actions}, not {:?}", object.action(phase)));
        }
        let after_unknown = change.map_or(&Json::Null, |change| &change["change"]["after_unknown"]);
        if phase == Phase::Unknown && !object.attribute.is_unknown(after_unknown) {
            wrong.push(format!("{address}: is known"));
        }
    }
    assert!(wrong.is_empty(), "plan of phase {phase:?}: {wrong:#?}");
}

/// Whether a value has what the configuration sets. The state has null for what an object omits.
fn contains(value: &Json, wanted: &Json) -> bool {
    match (value, wanted) {
        (Json::Object(value), Json::Object(wanted)) => {
            wanted.iter().all(|(name, wanted)| contains(value.get(name).unwrap_or(&Json::Null), wanted))
        }
        (value, wanted) => value == wanted,
    }
}

#[test]
fn attributes_are_created_changed_nulled_and_destroyed() {
    let lab = Lab::start().unwrap();
    let bench = Bench::new(|name| lab.cloud().create(name, "19.2.0").unwrap().0, &lab.client_key().path);
    finish_jobs(&lab);
    let objects: Vec<_> = ["resource", "data"].into_iter().flat_map(|kind| bench.objects(kind)).collect();

    apply(&bench, &objects, Phase::Create);
    computed_attributes_are_known(&bench);
    assert_eq!(bench.workspace.plan().unwrap().succeeded().planned(), [""; 0]);
    for phase in [Phase::Change, Phase::Null, Phase::Unknown] {
        apply(&bench, &objects, phase);
    }
    for host in ["kept-1", "kept-2"] {
        assert_eq!(signals(&lab, host), [""; 0], "{host}");
    }
    for host in ["retired-1", "retired-2"] {
        assert_eq!(signals(&lab, host), ["SIGQUIT"], "{host}");
    }
    bench.workspace.destroy().unwrap().succeeded();
    assert_eq!(bench.workspace.state().unwrap().objects.len(), 0);
    assert_eq!(signals(&lab, "drained"), ["SIGQUIT"]);
    invoked::each_attribute_of_the_actions_is_accepted(&bench);
}

/// After the create, each computed attribute has a value in an object of its type, unless the table names it.
fn computed_attributes_are_known(bench: &Bench) {
    let state = bench.workspace.state().unwrap();
    let schemas = ["resource_schemas", "data_source_schemas"].map(|kind| Attribute::all(&bench.schema[kind]));
    let computed = schemas.into_iter().flatten().filter(|attribute| attribute.computed);
    let null: Vec<_> = computed
        .filter(|attribute| {
            let mut objects = state.objects.iter().filter(|object| {
                object.address.trim_start_matches("data.").starts_with(&format!("{}.", attribute.of))
            });
            objects.all(|object| attribute.of(&object.attributes).is_null())
        })
        .map(|attribute| format!("{}.{}", attribute.of, attribute.path))
        .collect();
    assert_eq!(null, NULL_HERE);
}
