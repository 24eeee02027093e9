//! `timeouts` limit the whole operation, and `max_parallel` limits connections, not waits.

use std::{
    net::TcpListener,
    time::{Duration, Instant},
};

use grit_tests::{lab::Lab, link::Relay, terraform::Workspace};
use serde_json::{Map, Value as Json, json};

/// Hosts that accept connections and never respond.
struct Mute(Vec<TcpListener>);

impl Mute {
    fn start(count: usize) -> Self {
        Self((0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect())
    }

    fn managers(&self) -> Map<String, Json> {
        let manager = |(index, listener): (usize, &TcpListener)| {
            let name = format!("m{index}");
            let manager = json!({
                "instance_name": name,
                "address": listener.local_addr().unwrap().to_string(),
                "wrapper_address": "unix:///run/wrapper.sock",
                "username": "deploy",
            });
            (name, manager)
        };
        self.0.iter().enumerate().map(manager).collect()
    }
}

/// A workspace with these resources, one connection at a time.
fn one_at_a_time(lab: &Lab, resource: &Json) -> Workspace {
    let workspace = Workspace::new(&["grit"]).unwrap();
    let main = json!({
        "terraform": { "required_providers": { "grit": { "source": "runner-tools/grit" } } },
        "provider": { "grit": {
            "ssh": { "private_key_path": lab.client_key().path, "insecure_ignore_host_key": true },
            "max_parallel": 1,
        } },
        "resource": resource,
    });
    workspace.write("main.tf.json", &main.to_string()).unwrap();
    workspace
}

#[test]
fn health_wait_with_silent_hosts_ends_at_timeout() {
    let (lab, mute) = (Lab::start().unwrap(), Mute::start(5));
    let health_check = json!({ "runner_managers": mute.managers(), "timeouts": { "create": "4s" } });
    let workspace = one_at_a_time(&lab, &json!({ "grit_runner_health": { "all": health_check } }));
    let start = Instant::now();
    let failed = workspace.apply().unwrap().failed();
    let took = start.elapsed();
    assert_eq!(failed.errors().len(), 5, "{:?}", failed.errors());
    // In sequence it would take 20 s.
    assert!(took < Duration::from_secs(15), "{took:?}");
}

#[test]
fn stable_for_runs_in_parallel_with_one_connection() {
    let lab = Lab::start().unwrap();
    let hosts: Vec<_> = (0..4).map(|n| lab.cloud().create(&format!("m{n}"), "19.2.0").unwrap()).collect();
    let managers: Map<_, _> =
        hosts.iter().map(|(it, _)| (it.instance_name.clone(), it.runner_manager())).collect();
    let health_check =
        json!({ "runner_managers": managers, "stable_for": "6s", "timeouts": { "create": "20s" } });
    let workspace = one_at_a_time(&lab, &json!({ "grit_runner_health": { "all": health_check } }));
    let start = Instant::now();
    workspace.apply().unwrap().succeeded();
    let took = start.elapsed();
    // In sequence it would take 24 s, also if each wait had the whole timeout.
    assert!(took < Duration::from_secs(20), "{took:?}");
}

#[test]
fn refresh_with_silent_hosts_ends_at_its_limit() {
    let lab = Lab::start().unwrap();
    let (mut managers, mut links) = (Map::new(), Vec::new());
    for n in 0..5 {
        let (instance, _host) = lab.cloud().create(&format!("m{n}"), "19.2.0").unwrap();
        let link = Relay::start(instance.address.parse().unwrap()).unwrap();
        let mut manager = instance.runner_manager();
        manager["address"] = json!(link.address().to_string());
        managers.insert(instance.instance_name, manager);
        links.push(link);
    }
    let health_check = json!({ "runner_managers": managers, "timeouts": { "create": "60s" } });
    let workspace = one_at_a_time(&lab, &json!({ "grit_runner_health": { "all": health_check } }));
    workspace.apply().unwrap().succeeded();

    for link in &links {
        link.cut();
    }
    let start = Instant::now();
    let plan = workspace.plan().unwrap().succeeded();
    let took = start.elapsed();
    // The limit is 10 s. In sequence it would take 50 s, with 10 s for each host.
    assert!(took >= Duration::from_secs(10), "the hosts are not silent: {took:?}");
    assert!(took < Duration::from_secs(30), "{took:?}");
    // The first host to connect, which may be any of them, had all of the time. The others waited for its slot, and are reported together.
    let warnings = plan.warnings();
    let named = |detail: &str| (0..5).filter(|n| detail.contains(&format!("m{n}"))).count();
    assert!(warnings.iter().any(|(_, detail)| named(detail) >= 4), "{warnings:#?}");
}
