//! A rollout to managers that can never take jobs drains nobody, in each layout. `dead_managers.rs` has the table of causes.

use super::*;

/// A layout with the variables of its first version, and of the second one.
struct Layout {
    name: &'static str,
    first: Vec<Json>,
    second: Json,
}

fn layouts() -> Vec<Layout> {
    let versions = || versions(&["blue", "green"]);
    let colour = |version| json!({ "a": manager(version), "b": manager(version) });
    let shard = |version: &str| {
        let mut shard = manager("19.2.1");
        shard["managers"] = json!(2);
        shard["version"] = json!(version);
        json!({ "shards": { "linux": shard } })
    };
    let by_key = |name| Layout {
        name,
        first: vec![json!({ "versions": versions(), "active_versions": ["v1"] })],
        second: json!({ "active_versions": ["v2"] }),
    };
    vec![
        by_key("versions-as-keys"),
        by_key("module-per-version"),
        Layout {
            name: "canary",
            first: vec![json!({
                "versions": versions(), "active_version": "v1", "canary": "blue", "soak": "1s", "health_timeout": "60s",
            })],
            second: json!({ "active_version": "v2" }),
        },
        Layout {
            name: "blue-green",
            first: vec![
                json!({ "colours": { "blue": colour("19.2.1"), "green": {} }, "active": "blue" }),
                json!({ "colours": { "blue": colour("19.2.1"), "green": colour("19.2.2") } }),
            ],
            second: json!({ "active": "green" }),
        },
        Layout { name: "shards", first: vec![shard("v1")], second: shard("v2") },
    ]
}

#[test]
fn dead_managers_drain_nobody_in_each_layout() {
    for Layout { name, first, second } in layouts() {
        // Without `listen_address`, and with a token that GitLab rejects.
        let mut example = Example::with_hosts(name, |host, spec| {
            if host.ends_with("v2") || host.starts_with("green-") && !host.ends_with("v1") {
                spec.listen = false;
            }
        });
        for variables in first {
            example.apply(variables).succeeded();
        }
        let old: Vec<_> = example.hosts().into_iter().filter(|host| example.is_running(host)).collect();
        for host in ["blue-v2", "green-v2", "green-a", "green-b", "linux-1-v2", "linux-2-v2"] {
            example.lab.queue().refuse_token(&format!("glrt-{host}"));
        }
        let from = example.now();
        let failed = example.apply(second).failed();
        let errors = failed.errors();
        assert!(
            errors.iter().all(|(_, detail)| detail.ends_with("Code: invalid_config")),
            "{name}: {errors:?}"
        );
        assert_eq!(example.signalled(from, "SIGQUIT"), Vec::<String>::new(), "{name}");
        assert_eq!(example.signalled(from, "SIGTERM"), Vec::<String>::new(), "{name}");
        let kept = old.iter().all(|host| example.hosts().contains(host) && example.is_running(host));
        assert!(kept && !old.is_empty(), "{name}: {old:?}, {:?}", example.hosts());
        // They take jobs.
        example.lab.queue().submit(2, Duration::ZERO);
        example.lab.queue().wait_all_ended(PATIENCE).unwrap();
    }
}
