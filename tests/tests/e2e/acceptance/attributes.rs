//! The attributes of the provider, read from its schema.

use serde_json::{Map, Value as Json};

/// The key of the entry that is used in a map of objects.
pub(super) const KEY: &str = "m";

/// An attribute of a type.
#[derive(Debug, Clone)]
pub(super) struct Attribute {
    /// Such as `grit_runner_drain`.
    pub(super) of: String,
    /// Such as `runner_managers.address`.
    pub(super) path: String,
    /// The keys that lead to it in a value, such as `runner_managers`, [`KEY`], `address`.
    keys: Vec<String>,
    pub(super) required: bool,
    pub(super) computed: bool,
}

impl Attribute {
    /// All attributes of these types: objects first, then their attributes.
    pub(super) fn all(schemas: &Json) -> Vec<Self> {
        let mut found = Vec::new();
        for (of, schema) in schemas.as_object().unwrap() {
            let block = schema.get("block").unwrap_or(schema);
            add(of, "", &[], &block["attributes"], &mut found);
        }
        assert!(!found.is_empty(), "{schemas}");
        found
    }

    /// The name without the objects around it.
    pub(super) fn leaf(&self) -> &str {
        self.path.rsplit('.').next().unwrap()
    }

    /// The name of a block that is about this attribute.
    pub(super) fn block(&self) -> String {
        self.path.replace('.', "-")
    }

    /// Its value in `object`. Null if an object around it is null.
    pub(super) fn of(&self, object: &Json) -> Json {
        let found = self.keys.iter().fold(object, |value, key| value.get(key).unwrap_or(&Json::Null));
        // The state has the type of a dynamic value beside it.
        match (found.get("value"), found.get("type")) {
            (Some(value), Some(_)) => value.clone(),
            _ => found.clone(),
        }
    }

    /// Whether `after_unknown` of a plan says that it is unknown, or a part of it.
    pub(super) fn is_unknown(&self, after_unknown: &Json) -> bool {
        let mut value = after_unknown;
        for key in &self.keys {
            if value == true {
                return true;
            }
            value = value.get(key).unwrap_or(&Json::Null);
        }
        value.to_string().contains("true")
    }

    /// `object` with this value of the attribute.
    pub(super) fn with(&self, object: &Json, value: Json) -> Json {
        let mut object = object.clone();
        let place = self.keys.iter().fold(&mut object, |object, key| {
            if object.is_null() {
                *object = Map::new().into();
            }
            &mut object[key]
        });
        *place = value;
        object
    }
}

fn add(of: &str, outer: &str, keys: &[String], attributes: &Json, found: &mut Vec<Attribute>) {
    for (name, attribute) in attributes.as_object().unwrap() {
        let path = if outer.is_empty() { name.clone() } else { format!("{outer}.{name}") };
        let mut keys = [keys, std::slice::from_ref(name)].concat();
        found.push(Attribute {
            of: of.to_owned(),
            path: path.clone(),
            keys: keys.clone(),
            required: attribute["required"] == true,
            computed: attribute["computed"] == true,
        });
        let nested = &attribute["nested_type"];
        match nested["nesting_mode"].as_str() {
            None => continue,
            Some("single") => {}
            Some("map") => keys.push(KEY.to_owned()),
            Some(other) => panic!("{of}.{path}: nesting mode {other}"),
        }
        add(of, &path, &keys, &nested["attributes"], found);
    }
}
