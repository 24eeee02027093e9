//! The queries of the Grafana dashboard of the module `prometheus`.

use anyhow::Context as _;
use serde_json::Value as Json;

/// A query of the dashboard.
#[derive(Debug, Clone)]
pub struct Query {
    /// The title of the panel or annotation.
    pub title: String,
    /// The expression, without variables of Grafana.
    pub expression: String,
    /// The legend, with `{{label}}`.
    pub legend: String,
}

impl Query {
    /// The labels that the legend names.
    pub fn labels(&self) -> Vec<&str> {
        self.legend.split("{{").skip(1).filter_map(|rest| rest.split("}}").next()).collect()
    }
}

/// The queries of the panels and of the annotations, for a time range of some minutes. A panel without a query is a heading.
pub fn queries(dashboard: &str) -> anyhow::Result<Vec<Query>> {
    let dashboard: Json = serde_json::from_str(dashboard)?;
    let list = |value: &Json| value.as_array().cloned().unwrap_or_default();
    let mut found = Vec::new();
    for panel in list(&dashboard["panels"]) {
        let targets = list(&panel["targets"]);
        anyhow::ensure!(targets.len() <= 1, "a panel has one query: {panel}");
        let query = |target: &Json| query(&panel["title"], &target["expr"], &target["legendFormat"]);
        found.extend(targets.first().map(query).transpose()?);
    }
    for it in list(&dashboard["annotations"]["list"]) {
        found.push(query(&it["name"], &it["expr"], &it["titleFormat"])?);
    }
    Ok(found)
}

fn query(title: &Json, expression: &Json, legend: &Json) -> anyhow::Result<Query> {
    let variables =
        [("$instance", ".*"), ("$__rate_interval", "3s"), ("$__range", "5m"), ("$__interval", "1s")];
    let expression = expression.as_str().context("a query has an expression")?.to_owned();
    let expression =
        variables.iter().fold(expression, |text, (variable, value)| text.replace(variable, value));
    anyhow::ensure!(!expression.contains('$'), "unknown variable of Grafana: {expression}");
    let text = |value: &Json| value.as_str().map(str::to_owned).context("a query has a title and a legend");
    Ok(Query { title: text(title)?, expression, legend: text(legend)? })
}
