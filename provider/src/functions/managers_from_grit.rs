//! `managers_from_grit`: the outputs of GRIT's modules `aws/runner` and `google/runner` as a map of runner managers.

use std::collections::BTreeMap;

use grit_plugin::{
    Function, FunctionError, Problems,
    schema::{
        AnyValue, AttributePath, AttributePathStep, AttributeType, Dynamic, FunctionSchema, Parameter, Value,
    },
};

use super::runner_managers;
use crate::{
    config::{
        contract::{self, Managers},
        manager::RunnerManagerArgs,
        object::Object as _,
    },
    explain::functions,
};

#[derive(Debug)]
pub struct ManagersFromGrit;

type Outputs = BTreeMap<String, Dynamic>;

/// The outputs of one of GRIT's modules that describe its runner manager.
struct Module {
    instance_name: &'static str,
    instance_id: &'static str,
    wrapper_address: &'static str,
    /// The first address that is not empty is used.
    addresses: [&'static str; 2],
    ssh_key: Option<&'static str>,
    /// The output that only this module has.
    mark: &'static str,
}

const MODULES: [Module; 2] = [
    Module {
        instance_name: "ec2_instance_name",
        instance_id: "ec2_instance_id",
        wrapper_address: "ec2_runner_wrapper_socket_path",
        addresses: ["ec2_public_ip", "ec2_private_ip"],
        ssh_key: Some("ec2_ssh_key_openssh_pem"),
        mark: "ec2_instance_name",
    },
    Module {
        instance_name: "instance_name",
        instance_id: "instance_id",
        wrapper_address: "wrapper_address",
        addresses: ["external_ip", "internal_ip"],
        ssh_key: None,
        mark: "internal_ip",
    },
];

impl Function for ManagersFromGrit {
    type Arguments = Vec<Value<AnyValue>>;
    type Output = Managers;

    fn schema(&self) -> FunctionSchema {
        FunctionSchema {
            summary: "Runner managers from the outputs of GRIT's modules",
            description: "Returns the map of runner managers that the outputs of GRIT's modules `aws/runner` and `google/runner` describe. \
                          Each argument is a module, or a map or list of modules. The keys of a map become the keys of the runner managers; \
                          without a map, the key is the instance name.",
            parameters: Vec::new(),
            variadic: Some(Parameter {
                name: "modules",
                kind: AttributeType::Any,
                allow_unknown: true,
                description: "A module such as `module.runner`, or a map or list of modules.",
            }),
            returns: runner_managers(),
        }
    }

    fn call(&self, arguments: Vec<Value<AnyValue>>) -> Result<Value<Managers>, FunctionError> {
        let mut managers = Managers::new();
        let mut keys_are_known = true;
        for (index, argument) in arguments.iter().enumerate() {
            let mut problems = Problems::default();
            for (key, manager) in of_argument(&Dynamic::from(argument), &mut problems) {
                let Value::Value(key) = key else {
                    keys_are_known = false;
                    continue;
                };
                if managers.contains_key(&key) {
                    problems.add(functions::same_key(&key));
                }
                managers.insert(key, manager);
            }
            if !problems.is_empty() {
                return Err(functions::invalid_argument(index, &problems));
            }
        }
        Ok(if keys_are_known { Value::Value(managers) } else { Value::Unknown })
    }
}

type Entry = (Value<String>, Value<RunnerManagerArgs>);

/// The runner managers of one argument.
fn of_argument(argument: &Dynamic, problems: &mut Problems) -> Vec<Entry> {
    let root = AttributePath::root();
    match argument {
        Dynamic::Unknown => vec![(Value::Unknown, Value::Unknown)],
        Dynamic::Object(outputs) if module(outputs).is_some() => of_module(None, argument, &root, problems),
        Dynamic::Object(modules) => modules
            .iter()
            .flat_map(|(key, outputs)| {
                of_module(Some(key), outputs, &step(AttributePathStep::Key(key.clone().into())), problems)
            })
            .collect(),
        Dynamic::List(modules) => (0_i64..)
            .zip(modules)
            .flat_map(|(index, outputs)| {
                of_module(None, outputs, &step(AttributePathStep::Index(index)), problems)
            })
            .collect(),
        other => {
            problems
                .add(functions::not_a_module(&root, &format!("the argument is {}", other.kind())).at(root));
            Vec::new()
        }
    }
}

fn step(step: AttributePathStep) -> AttributePath {
    AttributePath { steps: vec![step] }
}

fn module(outputs: &Outputs) -> Option<&'static Module> {
    MODULES.iter().find(|module| outputs.contains_key(module.mark))
}

/// The runner manager of one module. `key`: its key, if it is not the instance name.
fn of_module(
    key: Option<&String>,
    outputs: &Dynamic,
    path: &AttributePath,
    problems: &mut Problems,
) -> Vec<Entry> {
    let outputs = match outputs {
        Dynamic::Object(outputs) => outputs,
        Dynamic::Unknown => {
            let key = key.map_or(Value::Unknown, |key| Value::Value(key.clone()));
            return vec![(key, Value::Unknown)];
        }
        other => {
            problems.add(functions::not_a_module(path, &format!("it is {}", other.kind())).at(path.clone()));
            return Vec::new();
        }
    };
    let Some(module) = module(outputs) else {
        let names: Vec<_> = outputs.keys().map(|name| format!("`{name}`")).collect();
        let found = format!("it has the attributes {}", names.join(", "));
        problems.add(
            functions::not_a_module(path, if names.is_empty() { "it is empty" } else { &found })
                .at(path.clone()),
        );
        return Vec::new();
    };
    let before = problems.len();
    let mut output = |name: &'static str| {
        let value = outputs.get(name).unwrap_or(&Dynamic::Null);
        let value = contract::text(value, path.clone().attribute(name), problems);
        // GRIT's modules have an empty string in place of null.
        if value == Value::Value(String::new()) { Value::Null } else { value }
    };
    let [first, second] = module.addresses.map(&mut output);
    let mut manager = RunnerManagerArgs {
        instance_name: output(module.instance_name),
        address: if first.is_null() { second } else { first },
        wrapper_address: output(module.wrapper_address).map(with_scheme),
        username: Value::Null,
        ssh_key_pem: module.ssh_key.map_or(Value::Null, &mut output),
        instance_id: output(module.instance_id),
        host_key: Value::Null,
    };
    if manager.address.is_null() {
        problems.add(functions::no_address(path, module.addresses).at(path.clone()));
    }
    if manager.wrapper_address.is_null() {
        problems.add(functions::no_wrapper(path, module.wrapper_address).at(path.clone()));
    }
    if manager.instance_name.is_null() {
        match key {
            Some(key) => manager.instance_name = Value::Value(key.clone()),
            None => problems.add(functions::no_instance_name(path, module.instance_name).at(path.clone())),
        }
    }
    if problems.len() == before {
        manager.check_at(path, problems);
    }
    let key = key.map_or_else(|| manager.instance_name.clone(), |key| Value::Value(key.clone()));
    if problems.len() == before { vec![(key, Value::Value(manager))] } else { Vec::new() }
}

/// The address of a wrapper. GRIT names its output "socket path": a plain path is accepted as well.
fn with_scheme(address: String) -> String {
    if address.starts_with('/') { format!("unix://{address}") } else { address }
}

#[cfg(test)]
mod tests;
