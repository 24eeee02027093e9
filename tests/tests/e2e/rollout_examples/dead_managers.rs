//! A rollout to managers that can never take jobs drains nobody, in each layout. `dead_managers.rs` has the table of causes.

use super::*;
use crate::{example::repository, recycling::Fleet, two_directories::Directories};

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

/// A host of the new version: its runner has no `listen_address`.
fn shape(host: &str, spec: &mut HostSpec) {
    spec.listen = host.ends_with("v1") || host.starts_with("blue-") && !host.ends_with("v2");
}

fn running(lab: &Lab) -> Vec<String> {
    let instances = lab.cloud().instances().into_iter();
    instances.filter(|(_, host)| host.runner_pid().is_some()).map(|(it, _)| it.instance_name).collect()
}

/// Applies the new version twice. Each apply fails, no runner is signalled, and the old managers take jobs.
fn assert_drains_nobody(layout: &str, lab: &Lab, mut apply: impl FnMut() -> Run) {
    for host in ["blue-v2", "green-v2", "green-a", "green-b", "linux-1-v2", "linux-2-v2"] {
        lab.queue().refuse_token(&format!("glrt-{host}"));
    }
    let (old, from) = (running(lab), lab.events().all().len());
    assert!(!old.is_empty(), "{layout}");
    for _ in 0..2 {
        let failed = apply().failed();
        let errors = failed.errors();
        assert!(
            !errors.is_empty() && errors.iter().all(|(_, detail)| detail.ends_with("Code: invalid_config")),
            "{layout}: {errors:?}"
        );
        let signal = lab.events().all().into_iter().skip(from);
        let signal = signal.into_iter().find(|event| matches!(event.what, What::RunnerSignal { .. }));
        assert_eq!(signal, None, "{layout}");
        let kept = running(lab);
        assert!(old.iter().all(|host| kept.contains(host)), "{layout}: {old:?}, {kept:?}");
    }
    lab.queue().submit(2, Duration::ZERO);
    lab.queue().wait_all_ended(PATIENCE).unwrap();
}

#[test]
fn dead_managers_drain_nobody_in_each_layout() {
    for Layout { name, first, second } in layouts() {
        let mut example = Example::with_hosts(name, shape);
        for variables in first {
            example.apply(variables).succeeded();
        }
        example.set(second);
        assert_drains_nobody(name, &example.lab, || example.workspace.apply().unwrap());
    }
}

#[test]
fn dead_managers_drain_nobody_in_directories() {
    for (name, arguments) in
        [("two-directories", &[][..]), ("retire-another-directory", &["-var=old_directory=../v1"][..])]
    {
        let directories = Directories::with_hosts(name, shape);
        directories.initialize("v1", name == "two-directories");
        directories.initialize("v2", true);
        directories.apply("v1", &[]).succeeded();
        directories.wait_until_running("v1");
        assert_drains_nobody(name, &directories.lab, || directories.apply("v2", arguments));
    }
}

#[test]
fn dead_managers_drain_nobody_when_managers_are_recycled() {
    let fleet = Fleet::new(&json!({ "blue": "v1", "green": "v1" }));
    fleet.rollout.lab.cloud().shape(shape);
    fleet.apply().succeeded();
    fleet.set_revisions(&json!({ "blue": "v2", "green": "v2" }));
    assert_drains_nobody("recycle", &fleet.rollout.lab, || fleet.apply());
}

/// Each directory of `examples/rollouts/` is in one of the tests above.
#[test]
fn no_layout_is_without_dead_managers() {
    let folders = fs::read_dir(repository("examples/rollouts")).unwrap();
    let mut names: Vec<_> =
        folders.map(|folder| folder.unwrap().file_name().into_string().unwrap()).collect();
    // It has one version only.
    names.retain(|name| name != "emergency-stop");
    names.sort();
    let mut tested: Vec<_> = layouts().iter().map(|layout| layout.name).collect();
    tested.extend(["recycle", "retire-another-directory", "two-directories"]);
    tested.sort_unstable();
    assert_eq!(names, tested);
}
