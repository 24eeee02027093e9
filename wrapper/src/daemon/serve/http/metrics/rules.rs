//! Checks the shipped alert rules against the exported metrics: a rule on a renamed metric would never fire.

use std::{collections::BTreeSet, fs};

use super::tests::{PREFIXES, busy, render, states_of_one_runner};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/prometheus");

/// Labels that Prometheus adds to every sample.
const TARGET_LABELS: [&str; 2] = ["job", "instance"];

fn read(name: &str) -> String {
    fs::read_to_string(format!("{FOLDER}/{name}")).unwrap()
}

/// A selector in a rule or in its tests: a metric, and the values of its labels.
#[derive(Debug, PartialEq)]
struct Selector {
    metric: String,
    labels: Vec<(String, Vec<String>)>,
}

/// The selectors of the wrapper's metrics in a file. Names of recording rules contain colons.
fn selectors(text: &str) -> Vec<Selector> {
    let of_a_name = |character: char| character.is_ascii_alphanumeric() || matches!(character, '_' | ':');
    let mut found = Vec::new();
    let starts = PREFIXES.iter().flat_map(|prefix| text.match_indices(prefix));
    for (start, _) in starts {
        let rest = &text[start..];
        let (name, rest) = rest.split_at(rest.find(|character| !of_a_name(character)).unwrap_or(rest.len()));
        if text[..start].ends_with(of_a_name) || name.contains(':') {
            continue;
        }
        let inside =
            rest.strip_prefix('{').and_then(|rest| rest.split_once('}')).map_or("", |(inside, _)| inside);
        let matchers = inside.split(',').map(str::trim).filter(|matcher| !matcher.is_empty());
        let label = |matcher: &str| {
            let (label, value) = matcher.split_once('=').unwrap();
            let is_pattern = value.starts_with('~');
            let value = value.trim_start_matches('~').trim_matches('"');
            let values = if is_pattern { value.split('|').collect() } else { vec![value] };
            (label.to_owned(), values.into_iter().map(str::to_owned).collect())
        };
        found.push(Selector { metric: name.to_owned(), labels: matchers.map(label).collect() });
    }
    found
}

/// The metrics in all states of a runner.
fn exported() -> BTreeSet<String> {
    let pages = states_of_one_runner().into_iter().map(|state| render(state, &busy()));
    pages.flat_map(|page| page.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}

fn is_exported(exported: &BTreeSet<String>, selector: &Selector) -> bool {
    let samples = exported.iter().filter_map(|line| line.strip_prefix(&selector.metric));
    let samples: Vec<_> = samples.filter(|rest| rest.starts_with(['{', ' '])).collect();
    let ours = selector.labels.iter().filter(|(label, _)| !TARGET_LABELS.contains(&label.as_str()));
    let pairs =
        ours.flat_map(|(label, values)| values.iter().map(move |value| format!("{label}=\"{value}\"")));
    let pairs: Vec<_> = pairs.collect();
    !samples.is_empty() && pairs.iter().all(|pair| samples.iter().any(|sample| sample.contains(pair)))
}

#[test]
fn alert_rules_use_only_exported_series() {
    let exported = exported();
    for file in ["grit-wrapper.rules.yml", "grit-wrapper.rules.test.yml"] {
        let selectors = selectors(&read(file));
        assert!(selectors.len() > 20, "{file}: {selectors:?}");
        for selector in selectors {
            assert!(is_exported(&exported, &selector), "{file}: the wrapper does not export {selector:?}");
        }
    }
}

#[test]
fn series_that_is_not_exported_is_detected() {
    let found = selectors(
        r#"increase(grit_wrapper_drains_total{mode="graceful",outcome=~"jobs_aborted|killed"}[1h]) > job:grit_wrapper_x:sum"#,
    );
    let labels = |pairs: &[(&str, &[&str])]| {
        let owned = |values: &[&str]| values.iter().map(|&value| value.to_owned()).collect();
        pairs.iter().map(|(label, values)| ((*label).to_owned(), owned(values))).collect::<Vec<_>>()
    };
    let wanted = labels(&[("mode", &["graceful"]), ("outcome", &["jobs_aborted", "killed"])]);
    assert_eq!(found, [Selector { metric: "grit_wrapper_drains_total".to_owned(), labels: wanted }]);
    let exported = exported();
    assert!(is_exported(&exported, &found[0]));
    for text in [
        "grit_wrapper_drain_total",
        "grit_wrapper_drains",
        r#"grit_wrapper_runner_state{state="paused"}"#,
        r#"grit_wrapper_drains_total{outcome=~"killed|forced"}"#,
        r#"grit_wrapper_runner_up{state="running"}"#,
    ] {
        assert!(!is_exported(&exported, &selectors(text)[0]), "{text}");
    }
}

#[test]
fn each_alert_has_section_and_tests_of_both_outcomes() {
    let (rules, tests) = (read("grit-wrapper.rules.yml"), read("grit-wrapper.rules.test.yml"));
    let after = |text: &str, word: &str| {
        let lines = text.lines().filter_map(|line| line.trim().strip_prefix(word).map(str::to_owned));
        lines.collect::<BTreeSet<_>>()
    };
    let alerts = after(&rules, "- alert: ");
    assert!(alerts.len() > 10, "{alerts:?}");
    assert_eq!(after(&tests, "- alertname: "), alerts, "where an alert fires");
    let silent = after(&tests, "- { alertname: ");
    let silent: BTreeSet<_> = silent.iter().filter(|test| test.ends_with("exp_alerts: [] }")).collect();
    let silent: BTreeSet<_> = silent.iter().map(|test| test.split(',').next().unwrap().to_owned()).collect();
    assert_eq!(silent, alerts, "where an alert does not fire");

    let guide =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/guides/monitoring.md")).unwrap();
    let sections = guide.lines().filter_map(|line| line.strip_prefix("### ")).map(str::to_owned);
    assert_eq!(sections.collect::<BTreeSet<_>>(), alerts, "each alert has a section in the guide");
    let page = "https://registry.terraform.io/providers/runner-tools/grit/latest/docs/guides/monitoring#";
    let links: BTreeSet<_> = alerts.iter().map(|alert| format!("{page}{}", alert.to_lowercase())).collect();
    assert_eq!(after(&rules, "runbook_url: "), links);
}
