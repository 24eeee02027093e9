//! The state file of the local backend, read directly and not through Terraform.

use std::{io, path::Path};

use serde_json::Value as Json;

/// A state, possibly empty.
#[derive(Debug, Clone, Default)]
pub struct State {
    /// Every object, current and deposed.
    pub objects: Vec<Object>,
    /// The whole file as text, to search for secrets.
    pub text: String,
}

/// One object of a managed resource or a data source.
#[derive(Debug, Clone)]
pub struct Object {
    /// Without the key: `lab_probe.p`, `module.m["v1"].lab_probe.p`.
    pub address: String,
    /// The key of `count` or `for_each`.
    pub key: Option<Json>,
    pub attributes: Json,
    pub tainted: bool,
    /// The old object of a replacement that is not complete.
    pub deposed: bool,
    /// Whether the object has the mark `create_before_destroy`.
    pub create_before_destroy: bool,
    /// Private data, as base64.
    pub private: Option<String>,
    pub dependencies: Vec<String>,
}

impl State {
    /// Reads the file. A missing or empty one is a state without objects.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            other => other?,
        };
        if text.trim().is_empty() {
            return Ok(Self { text, ..Self::default() });
        }
        let json: Json = serde_json::from_str(&text)?;
        let objects = array(&json["resources"]).iter().flat_map(|resource| {
            let address = address(resource);
            array(&resource["instances"]).iter().map(move |instance| Object::new(address.clone(), instance))
        });
        Ok(Self { objects: objects.collect(), text })
    }

    /// The objects at an address, with any key.
    pub fn at(&self, address: &str) -> Vec<&Object> {
        self.objects.iter().filter(|object| object.address == address).collect()
    }
}

impl Object {
    fn new(address: String, instance: &Json) -> Self {
        Self {
            address,
            key: instance.get("index_key").cloned(),
            attributes: instance["attributes"].clone(),
            tainted: instance["status"] == "tainted",
            deposed: instance.get("deposed").is_some(),
            create_before_destroy: instance["create_before_destroy"] == true,
            private: instance["private"].as_str().map(str::to_owned),
            dependencies: array(&instance["dependencies"])
                .iter()
                .filter_map(|dependency| dependency.as_str().map(str::to_owned))
                .collect(),
        }
    }
}

fn address(resource: &Json) -> String {
    let text = |key: &str| resource[key].as_str().unwrap_or_default();
    let module = resource["module"].as_str().map(|module| format!("{module}.")).unwrap_or_default();
    let data = if text("mode") == "data" { "data." } else { "" };
    format!("{module}{data}{}.{}", text("type"), text("name"))
}

fn array(json: &Json) -> &[Json] {
    json.as_array().map_or(&[], Vec::as_slice)
}
