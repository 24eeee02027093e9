//! The module `prometheus` with a real Prometheus, through a rollout.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    time::Duration,
};

use grit_testkit::page;
use grit_tests::{
    dashboard::{self, Query},
    prometheus::{Prometheus, Series, now, promtool},
    rollout::{Rollout, assert_order},
    sshd::free_address,
};
use serde_json::json;

use crate::modules::copy;

const GUIDE: &str = include_str!("../../../docs/guides/monitoring.md");
const DASHBOARD: &str = include_str!("../../../examples/modules/prometheus/files/dashboard.json");
const README: &str = include_str!("../../../examples/modules/prometheus/README.md");

fn modules() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/modules")
}

/// The configuration of this test, with the block of the guide and a shorter sleep.
fn configuration() -> String {
    let block = page::blocks(GUIDE, "terraform")[0];
    assert!(block.contains("sleep 30"), "{block}");
    include_str!("monitoring/main.tf").to_owned() + "\n" + &block.replace("sleep 30", "sleep 2")
}

/// Whether a series has each label of the legend, and a value.
fn has_data(query: &Query, found: &[Series]) -> bool {
    let is_complete = |series: &Series| query.labels().iter().all(|label| series.labels.contains_key(*label));
    let mut values = found.iter().flat_map(|series| &series.samples);
    found.iter().all(is_complete) && values.any(|(_, value)| value.is_finite())
}

#[test]
fn prometheus_shows_rollout_until_end_of_drain() {
    let folder = tempfile::tempdir().unwrap();
    let mut rollout = Rollout::with_providers(&configuration(), &["grit", "lab", "local"]).unwrap();
    for module in ["prometheus", "rollout"] {
        copy(&modules().join(module), &rollout.workspace.root().join("modules").join(module));
    }
    let metrics: BTreeMap<_, _> =
        ["m1-v1", "m1-v2"].map(|name| (name, free_address().unwrap().to_string())).into();
    let addresses: BTreeMap<String, String> =
        metrics.iter().map(|(name, address)| ((*name).to_owned(), format!("tcp://{address}"))).collect();
    rollout.lab.cloud().shape(move |name, spec| {
        *spec = spec.clone().wrapper(&["--http-listen", &addresses[name], "--probe-interval", "200ms"]);
    });
    rollout.set("metrics", json!(metrics)).unwrap();
    rollout.set("prometheus", json!(folder.path())).unwrap();
    rollout.workspace.get().unwrap().succeeded();
    rollout.deploy(&["m1-v1"]);

    let output = rollout.workspace.run(["output", "-raw", "prometheus_config"]).unwrap().succeeded().stdout;
    fs::write(folder.path().join("prometheus.yml"), output).unwrap();
    fs::copy(
        modules().join("prometheus/files/grit-wrapper.rules.yml"),
        folder.path().join("grit-wrapper.rules.yml"),
    )
    .unwrap();
    promtool(folder.path(), &["check", "config", "prometheus.yml"]).unwrap();
    let prometheus = Prometheus::start(folder.path()).unwrap();
    prometheus.wait_for("grit_wrapper_runner_health_level{instance=\"m1-v1\"} >= 3");
    let start = now();
    rollout.lab.queue().submit(2, Duration::from_millis(500));
    prometheus.wait_for("grit_wrapper_runner_ended_jobs_total{instance=\"m1-v1\",result=\"success\"} >= 2");

    let jobs = rollout.hold_jobs(1);
    rollout.managers(&["m1-v2"]).unwrap();
    let run = rollout.apply_while(|| {
        rollout.wait_for_drain("m1-v1");
        prometheus.wait_for("count_over_time((grit_wrapper_runner_state{instance=\"m1-v1\",state=\"draining\"} == 1)[1m:200ms]) >= 10");
        prometheus.wait_for("up{instance=\"m1-v2\"} == 1");
        rollout.lab.queue().release(&jobs);
    });
    let timeline = run.unwrap().succeeded().timeline();
    assert_order(
        &timeline,
        &[
            "complete update module.rollout.grit_runner_health.this",
            "complete delete module.rollout.grit_runner_drain.this[\"m1-v1\"]",
            "start delete module.prometheus.local_file.targets[\"m1-v1\"]",
            "start delete lab_instance.manager[\"m1-v1\"]",
        ],
    );
    let order =
        ["module.rollout.grit_runner_drain.this", "terraform_data.last_scrape", "lab_instance.manager"];
    let order = order.map(|name| format!("complete delete {name}[\"m1-v1\"]"));
    assert_order(&timeline, &order.each_ref().map(String::as_str));

    // The wrapper reported the end of the runner and of its drain.
    for series in [
        "grit_wrapper_runner_state{instance=\"m1-v1\",state=\"stopped\"}",
        "grit_wrapper_drains_total{instance=\"m1-v1\",outcome=\"clean\"}",
    ] {
        prometheus.wait_for(&format!("max_over_time({series}[5m]) == 1"));
    }
    grit_tests::poll::until("only the new target is left", Duration::from_secs(60), || {
        let targets = prometheus.get("targets", &[("state", "active")]).unwrap();
        let targets = targets["activeTargets"].as_array().cloned().unwrap_or_default();
        let names: Vec<_> = targets.iter().map(|target| target["labels"]["instance"].clone()).collect();
        if names == ["m1-v2"] { Ok(()) } else { Err(names) }
    });
    assert_eq!(fs::read_dir(folder.path().join("targets")).unwrap().count(), 1);

    let times = (start, now());
    let queries = dashboard::queries(DASHBOARD).unwrap();
    assert!(queries.len() >= 12, "{queries:?}");
    for query in queries {
        let series = prometheus.query_range(&query.expression, times, 0.2).unwrap();
        assert!(has_data(&query, &series), "{query:?}: {series:?}");
    }
    let firing = prometheus.query_range("ALERTS{alertstate=\"firing\"}", times, 0.2).unwrap();
    assert!(firing.is_empty(), "{firing:?}");
    let values = prometheus.get("label/instance/values", &[("match[]", "up{job=\"grit-wrapper\"}")]).unwrap();
    assert_eq!(values, json!(["m1-v1", "m1-v2"]));
}

#[test]
fn module_has_the_rules_of_the_package() {
    let package = include_str!("../../../wrapper/packaging/prometheus/grit-wrapper.rules.yml");
    let module = fs::read_to_string(modules().join("prometheus/files/grit-wrapper.rules.yml")).unwrap();
    assert!(package == module, "copy the rules of the package to the module");
}

/// Prometheus renames a label of a metric if the target has the same label, and the rules do not find it.
#[test]
fn module_refuses_each_label_of_the_metrics() {
    let metrics = include_str!("../../../docs/wrapper/metrics.md");
    let names =
        metrics.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`')).map(|(name, _)| name);
    let labels =
        names.filter_map(|name| name.split_once('{')?.1.strip_suffix('}')).filter(|list| *list != "...");
    let mut labels: BTreeSet<&str> = labels.flat_map(|list| list.split(',')).collect();
    assert!(labels.len() > 3, "{labels:?}");
    labels.extend(["job", "instance", "instance_name", "instance_id"]);
    let variables = fs::read_to_string(modules().join("prometheus/variables.tf")).unwrap();
    let lists: Vec<_> = variables.split("setintersection(keys(").skip(1).collect();
    assert_eq!(lists.len(), 2, "one for the labels of all targets, one for those of a runner manager");
    for list in lists {
        let (_, list) = list.split_once('[').unwrap();
        let (list, _) = list.split_once(']').unwrap();
        let refused: BTreeSet<&str> = list.split('"').skip(1).step_by(2).collect();
        assert_eq!(refused, labels);
    }
}

#[test]
fn documented_service_discovery_is_valid() {
    let blocks = page::blocks(README, "yaml");
    assert_eq!(blocks.len(), 2);
    let folder = tempfile::tempdir().unwrap();
    for block in blocks {
        fs::write(folder.path().join("prometheus.yml"), block).unwrap();
        promtool(folder.path(), &["check", "config", "--syntax-only", "prometheus.yml"]).unwrap();
    }
}
