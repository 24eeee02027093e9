//! The values of each attribute: one that a configuration begins with, another one, and wrong ones.

use grit_tests::lab::cloud::Instance;
use serde_json::{Value as Json, json};

use super::attributes::{Attribute, KEY};

/// The values of an attribute.
pub(super) struct Row {
    /// The value of the in-place change.
    pub(super) other: Json,
    /// Values that `terraform validate` refuses. Null is added for required attributes.
    pub(super) wrong: Vec<Json>,
    /// Attributes that exclude this one, or require it.
    pub(super) without: &'static [&'static str],
    /// The value of another attribute without which this one cannot be set.
    pub(super) with: Vec<(&'static str, Json)>,
    /// A change replaces the object.
    pub(super) replaces: bool,
    /// Null is refused, although the attribute is optional.
    pub(super) not_null: bool,
}

impl Row {
    fn new(other: Json, wrong: impl IntoIterator<Item = Json>) -> Self {
        Self {
            other,
            wrong: wrong.into_iter().collect(),
            without: &[],
            with: Vec::new(),
            replaces: false,
            not_null: false,
        }
    }
}

/// The computed attributes that are null for a healthy runner without these features, and for one without a drain.
pub(super) const NULL_HERE: &[&str] = &[
    "grit_runner_health.managers.problem",
    "grit_runner_health.started_drains",
    "grit_runner_shutdown.managers.receipt",
    "grit_runner_status.managers.drain",
    "grit_runner_status.managers.drain.id",
    "grit_runner_status.managers.drain.mode",
    "grit_runner_status.managers.drain.reason",
    "grit_runner_status.managers.error",
    "grit_runner_status.managers.error_code",
    "grit_runner_status.managers.failure_reason",
    "grit_runner_status.managers.oldest_job_seconds",
];

/// The hosts, by what happens to them. An attribute with an address changes from the first to the second of a pair.
pub(super) struct Values {
    pub(super) kept: [Instance; 2],
    pub(super) drained: Instance,
    pub(super) retired: [Instance; 2],
    /// Directories with a state that has the output `grit_runner_managers`.
    pub(super) deployments: [String; 2],
    pub(super) terraform: String,
}

impl Values {
    pub(super) fn new(
        create: impl Fn(&str) -> Instance + Copy,
        deployments: [String; 2],
        terraform: String,
    ) -> Self {
        Self {
            kept: ["kept-1", "kept-2"].map(create),
            drained: create("drained"),
            retired: ["retired-1", "retired-2"].map(create),
            deployments,
            terraform,
        }
    }

    fn instances(&self) -> [&Instance; 5] {
        let ([a, b], [c, d]) = (&self.kept, &self.retired);
        [a, b, c, d, &self.drained]
    }

    pub(super) fn host_keys(&self) -> Vec<&str> {
        self.instances().map(|instance| instance.host_key.as_str()).to_vec()
    }

    /// The runner manager of an attribute, and its second one.
    fn pair(&self, of: &str) -> [&Instance; 2] {
        let [kept, other] = &self.kept;
        match of {
            "grit_runner_drain" => [&self.drained, other],
            "grit_runner_health" | "grit_runner_status" => [kept, other],
            _ => self.retired.each_ref(),
        }
    }

    fn manager(&self, instance: &Instance) -> Json {
        json!({
            "instance_name": instance.instance_name,
            "address": instance.address,
            "wrapper_address": instance.wrapper_address,
            "username": "alice",
            "ssh_key_pem": "key-1",
            "instance_id": instance.id,
            "host_key": self.host_keys().join("\n"),
        })
    }

    fn output(&self, directory: usize) -> Json {
        json!({ "grit_runner_managers": { KEY: self.manager(&self.retired[directory]) } })
    }

    /// A state whose output is the map of one runner manager.
    pub(super) fn state(&self, directory: usize) -> String {
        let value = self.output(directory)["grit_runner_managers"].clone();
        let manager: serde_json::Map<_, _> =
            value[KEY].as_object().unwrap().keys().map(|name| (name.clone(), json!("string"))).collect();
        let kind = json!(["object", { KEY: ["object", manager] }]);
        json!({
            "version": 4, "terraform_version": "1.6.0", "serial": 1, "lineage": "0c6d4d9e-6a1c-4a8e-9b7e-3f6f4f0d8a11",
            "outputs": { "grit_runner_managers": { "value": value, "type": kind } }, "resources": [],
        })
        .to_string()
    }

    fn state_path(&self, directory: usize) -> Json {
        json!(format!("{}/terraform.tfstate", self.deployments[directory]))
    }

    /// An object of this type with a value of each attribute. `name` is part of what must be unique.
    pub(super) fn base(&self, of: &str, name: &str) -> Json {
        let map = || json!({ KEY: self.manager(self.pair(of)[0]) });
        let retry = json!({ "attempts": 3 });
        let wait = json!({ "create": "300s", "update": "300s" });
        let mut base = match of {
            "grit_runner_health" => json!({
                "runner_managers": map(), "drains": { KEY: "drain-1" }, "level": "working", "min_jobs": 1,
                "expected_version": "19.2.0", "start_if_stopped": false, "start_drains": false,
                "stable_for": "0s", "retry": retry, "triggers": { "a": "1" }, "timeouts": wait,
            }),
            "grit_runner_status" => json!({ "runner_managers": map() }),
            "grit_deployment" => json!({ "state_path": self.state_path(0) }),
            "grit_drain" => json!({
                "runner_managers": map(), "mode": "graceful", "reason": "one", "wait": true, "timeouts": { "invoke": "300s" },
            }),
            // The resources that drain have common options.
            _ => json!({
                "mode": "graceful", "on_timeout": "fail", "on_lost_jobs": "warn", "reason": "one", "retry": retry,
            }),
        };
        let more = match of {
            "grit_runner_drain" => json!({
                "instance_id": format!("i-{name}"), "runner_manager": map()[KEY], "timeouts": { "delete": "300s" },
            }),
            "grit_runner_shutdown" => {
                json!({ "runner_managers": map(), "wait": true, "triggers": { "a": "1" }, "timeouts": wait })
            }
            _ => json!({}),
        };
        base.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        if ["grit_runner_drain", "grit_runner_shutdown"].contains(&of) {
            base["on_unreachable"] = json!("fail");
        }
        base
    }

    /// The row of an attribute; none for an attribute that nobody has added to this table.
    pub(super) fn row(&self, attribute: &Attribute) -> Option<Row> {
        let (of, path) = (attribute.of.as_str(), attribute.path.as_str());
        let [first, second] = self.pair(of);
        let text = |other: &str| Row::new(json!(other), [json!([])]);
        let object = |other: Json| Row::new(other, [json!("text")]);
        let switch = || Row::new(json!(true), [json!("maybe")]);
        let choice = |other: &str, wrong: &str| Row::new(json!(other), [json!(wrong)]);
        let managers = || {
            let both = json!({ KEY: self.manager(first), "n": self.manager(second) });
            Row::new(both, [json!({ KEY: null })])
        };
        Some(match (of, path) {
            ("grit_runner_drain", "instance_id") => {
                Row { replaces: true, ..Row::new(json!(format!("i-{path}-2")), [json!("")]) }
            }
            ("grit_runner_drain", "runner_manager") => object(self.manager(second)),
            ("grit_deployment", _) => return self.source_row(path),
            ("grit_runner_health", "level") => Row { without: &["min_jobs"], ..choice("polling", "high") },
            ("grit_runner_health", "min_jobs") => Row::new(json!(2), [json!(0)]),
            ("grit_runner_health", "stable_for") => Row::new(json!("100ms"), [json!("soon"), json!("1h")]),
            (_, "runner_managers") => managers(),
            (_, "drains") => object(json!({ KEY: "drain-2" })),
            (_, "triggers") => object(json!({ "a": "2" })),
            (_, "retry") => object(json!({ "attempts": 4 })),
            (_, "timeouts") => object(self.shorter(of)),
            _ => match attribute.leaf() {
                "instance_name" => Row::new(json!("another"), [json!("")]),
                // The connection of these tests needs it.
                "address" => Row {
                    not_null: true,
                    ..Row::new(json!(second.address), [json!("h:99999"), json!(""), json!(null)])
                },
                "wrapper_address" => Row::new(json!(second.wrapper_address), [json!("/run/x.sock")]),
                "username" => choice("bob", "a b"),
                "ssh_key_pem" => text("key-2"),
                "instance_id" => text("i-another"),
                "host_key" => {
                    let keys = self.host_keys().into_iter().rev().collect::<Vec<_>>().join("\n");
                    choice(&keys, "SHA256:short")
                }
                "mode" => choice("forceful", "soft"),
                "on_timeout" => choice("force", "kill"),
                "on_lost_jobs" => choice("retry", "skip"),
                "on_unreachable" => choice("assume_terminated", "skip"),
                "reason" => text("two"),
                "expected_version" => text(""),
                "level" => choice("polling", "high"),
                "attempts" => Row::new(json!(4), [json!(0), json!(1.5)]),
                "create" | "update" | "delete" | "invoke" => {
                    Row::new(json!("301s"), [json!("soon"), json!("0s")])
                }
                "wait" => Row { other: json!(false), ..switch() },
                "start_if_stopped" | "start_drains" => switch(),
                _ => return None,
            },
        })
    }

    fn shorter(&self, of: &str) -> Json {
        let name = match of {
            "grit_runner_drain" => "delete",
            "grit_runner_health" | "grit_runner_shutdown" => "create",
            _ => "invoke",
        };
        json!({ name: "299s" })
    }

    /// The sources of a deployment exclude each other.
    fn source_row(&self, path: &str) -> Option<Row> {
        let [first, second] = self.deployments.each_ref();
        let source = |name: &'static str, value: Json, other: Json| Row {
            without: &["state_path"],
            with: vec![(name, value)],
            not_null: true,
            ..Row::new(other, [json!(""), json!(null)])
        };
        Some(match path {
            "state_path" => source("state_path", self.state_path(0), self.state_path(1)),
            "directory" => {
                let mut row = source("directory", json!(first), json!(second));
                row.with.push(("terraform_path", json!(self.terraform)));
                row
            }
            "terraform_path" => Row {
                without: &["state_path"],
                with: vec![("directory", json!(first)), ("terraform_path", json!(self.terraform))],
                ..Row::new(json!(self.terraform.replacen('/', "//", 1)), [json!([])])
            },
            _ => return None,
        })
    }
}
