//! More managers than Terraform handles in parallel.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use grit_testkit::rounds;
use grit_tests::{
    lab::{event::What, host::ssh},
    rollout::{PATIENCE, Rollout},
};
use serde_json::json;

/// The default of `-parallelism`.
const AT_A_TIME: usize = 10;

#[test]
fn checks_run_in_parallel_and_drains_ten_at_a_time() {
    let mut rollout = Rollout::start().unwrap();
    let names: Vec<_> = (1..=12).map(|number| format!("m{number:02}-v1")).collect();
    rollout.lab.cloud().shape(|_, spec| spec.concurrent = 1);
    rollout.managers(&names.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
    rollout.set("health", json!({ "create": "120s" })).unwrap();
    rollout.workspace.apply().unwrap().succeeded();
    let state = rollout.workspace.state().unwrap();
    let managers = &state.at("grit_runner_health.all")[0].attributes["managers"];
    assert_eq!(managers.as_object().map(serde_json::Map::len), Some(12), "{managers}");

    let jobs = rollout.hold_jobs(12);
    let drained = || names.iter().filter(|name| !rollout.signals(name).is_empty()).count();
    std::thread::scope(|scope| {
        let destroy = scope.spawn(|| rollout.workspace.destroy().unwrap());
        grit_tests::poll::until("ten drains are under way", PATIENCE, || match drained() {
            AT_A_TIME => Ok(()),
            other => Err(other),
        });
        rollout.lab.queue().release(&jobs);
        destroy.join().unwrap().succeeded();
    });
    assert_eq!(drained(), 12);
    let tally = rollout.lab.queue().tally();
    assert_eq!((tally.finished, tally.lost), (12, 0));
    assert_eq!(rollout.hosts(), Vec::<String>::new());
}

/// The number of managers on one machine.
const PER_MACHINE: usize = 4;

/// The SSH servers of the machines, by the version and the number of the machine.
#[derive(Clone, Default)]
struct Machines(Arc<Mutex<BTreeMap<String, ssh::Shared>>>);

impl Machines {
    /// The machine of a manager such as `m05-v1`. Each version has its own machines.
    fn name(manager: &str) -> String {
        let (number, version) = manager[1..].split_once('-').unwrap();
        let number: usize = number.parse().unwrap();
        format!("{version}-{}", (number - 1) / PER_MACHINE)
    }

    fn of(&self, manager: &str, client: &ssh::ClientKey) -> ssh::Shared {
        let mut machines = self.0.lock().unwrap();
        let machine = machines.entry(Self::name(manager));
        machine.or_insert_with(|| ssh::Shared::start(client).unwrap()).clone()
    }

    /// The machine fails, with all its managers. Returns the number of lost jobs.
    fn fail(&self, rollout: &Rollout, managers: &[String]) -> usize {
        self.0.lock().unwrap()[&Self::name(&managers[0])].end();
        managers.iter().map(|name| rollout.host(name).terminate()).sum()
    }
}

/// A rollout of a fleet under load, with four managers on each machine. A health check fails, a drain exceeds its timeout, and a machine fails
/// during its drains. Each apply names its failure, and the next one continues.
#[test]
fn fleet_rollout_with_faults_loses_only_jobs_of_dead_machine() {
    let count = rounds(8, 24);
    let names =
        |version: u32| (1..=count).map(|number| format!("m{number:02}-v{version}")).collect::<Vec<_>>();
    let mut rollout = Rollout::start().unwrap();
    let (machines, client) = (Machines::default(), rollout.lab.client_key().clone());
    let of_machine = machines.clone();
    rollout.lab.cloud().shape(move |name, spec| {
        *spec = std::mem::take(spec).under_load();
        spec.concurrent = 2;
        spec.ssh = ssh::Choice::Shared(of_machine.of(name, &client));
    });
    rollout.set("health", json!({ "create": "300s", "update": "30s" })).unwrap();
    rollout.set("drain", json!({ "delete": "30s" })).unwrap();
    rollout.managers(&texts(&names(1))).unwrap();
    rollout.workspace.apply().unwrap().succeeded();
    let addresses: BTreeSet<_> =
        rollout.lab.cloud().instances().into_iter().map(|(instance, _)| instance.address).collect();
    assert_eq!(addresses.len(), count / PER_MACHINE);
    // One of the two workers of each manager has a long job, and the other one has short jobs, which keep coming.
    let queue = rollout.lab.queue().clone();
    let long_jobs = queue.hold_on(&texts(&names(1)), PATIENCE);
    let long_jobs: BTreeMap<_, _> = names(1).into_iter().zip(long_jobs).collect();
    let load = queue.load(6 * count, Duration::from_millis(500));

    // The health check fails: nothing is drained.
    rollout.lab.queue().refuse_token("glrt-m03-v2");
    rollout.managers(&texts(&names(2))).unwrap();
    let run = rollout.workspace.apply().unwrap().failed();
    assert!(run.errors().iter().any(|(_, detail)| detail.contains("m03-v2")), "{:?}", run.errors());
    assert_eq!(names(1).iter().flat_map(|name| rollout.signals(name)).collect::<Vec<_>>(), [""; 0]);
    rollout.lab.queue().allow_token("glrt-m03-v2");
    rollout.host("m03-v2").reboot().unwrap();

    // The jobs of one manager take longer than the timeout of its drain, and the machine of m05 to m08 fails.
    rollout.set("health", json!({ "create": "300s", "update": "300s" })).unwrap();
    let dead: Vec<_> =
        names(1).into_iter().filter(|name| Machines::name(name) == Machines::name("m07-v1")).collect();
    assert_eq!(dead, ["m05-v1", "m06-v1", "m07-v1", "m08-v1"]);
    rollout.lab.expect_lost(PER_MACHINE);
    for name in &dead {
        rollout.lab.expect(&[&format!("{name} was destroyed while its runner ran")]);
    }
    let mut lost = 0;
    let run = rollout.apply_while(|| {
        rollout.lab.events().wait_for("a drain begins", 5 * PATIENCE, |event| {
            matches!(event.what, What::RunnerSignal { .. })
        });
        for name in names(1).iter().filter(|name| *name != "m02-v1" && !dead.contains(name)) {
            queue.release(&[long_jobs[name]]);
        }
        for name in &dead {
            rollout.wait_for_drain(name);
            grit_tests::poll::until("its short job ends", PATIENCE, || match queue.runner(name).running {
                1 => Ok(()),
                count => Err(count),
            });
        }
        lost = machines.fail(&rollout, &dead);
    });
    let run = run.unwrap().failed();
    assert_eq!(lost, PER_MACHINE, "one long job of each");
    let failed = [&dead[..], &["m02-v1".to_owned()]].concat();
    for name in &failed {
        let code = if name == "m02-v1" { "Code: timed_out" } else { "Code: " };
        let found = run
            .errors()
            .iter()
            .any(|(_, detail)| detail.contains(&format!("\"{name}\"")) && detail.contains(code));
        assert!(found, "{name}: {:?}", run.errors());
    }
    assert_eq!(run.errors().len(), failed.len(), "{:?}", run.errors());
    // Terraform destroys no instance of a resource before all drains that depend on this resource have been destroyed.
    let mut left = [names(1), names(2)].concat();
    left.sort();
    let mut hosts = rollout.hosts();
    hosts.sort();
    assert_eq!(hosts, left, "{:?}", run.errors());

    let instances = rollout.lab.cloud().instances().into_iter().map(|(instance, _)| instance);
    let gone: Vec<_> =
        instances.filter(|it| dead.contains(&it.instance_name)).map(|instance| instance.id).collect();
    rollout.workspace.set_env("GRIT_ASSUME_TERMINATED", gone.join(","));
    queue.release(&[long_jobs["m02-v1"]]);
    rollout.workspace.apply().unwrap().succeeded();
    let mut hosts = rollout.hosts();
    hosts.sort();
    assert_eq!(hosts, names(2));
    for name in names(1).iter().filter(|name| !dead.contains(name)) {
        assert_eq!(rollout.runner_was_alive_at_the_end_of(name), Some(false), "{name}");
        assert_eq!(rollout.signals(name), ["SIGQUIT"], "{name}");
    }
    drop(load);
    let tally = queue.wait_all_ended(5 * PATIENCE).unwrap();
    assert_eq!((tally.lost, tally.open()), (lost, 0), "{:?}", queue.lost());
}

fn texts(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}
