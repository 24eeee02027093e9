//! The Grafana dashboard of the module `prometheus`: its queries, and a picture of it with recorded data.

use std::{collections::BTreeMap, fmt::Write as _};

use anyhow::Context as _;
use grit_testkit::svg::{DARK, LIGHT, begin, rect, text};
use serde_json::Value as Json;

use crate::prometheus::Series;

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

    fn name(&self, series: &Series) -> String {
        self.labels().iter().fold(self.legend.clone(), |text, label| {
            let value = series.labels.get(*label).and_then(Json::as_str).unwrap_or_default();
            text.replace(&format!("{{{{{label}}}}}"), value)
        })
    }
}

/// A panel with its place in Grafana's grid of 24 columns.
#[derive(Debug, Clone)]
pub struct Panel {
    kind: String,
    unit: String,
    stacked: bool,
    colors: BTreeMap<String, (String, String)>,
    place: [f64; 4],
    /// A panel without a query is a heading.
    pub query: Option<Query>,
    title: String,
}

/// The panels and the queries of the annotations, for a time range of some minutes.
pub fn read(dashboard: &str) -> anyhow::Result<(Vec<Panel>, Vec<Query>)> {
    let dashboard: Json = serde_json::from_str(dashboard)?;
    let list = |value: &Json| value.as_array().cloned().unwrap_or_default();
    let panels: anyhow::Result<_> = list(&dashboard["panels"]).iter().map(panel).collect();
    let annotations = list(&dashboard["annotations"]["list"]);
    let queries: anyhow::Result<_> =
        annotations.iter().map(|it| query(&it["name"], &it["expr"], &it["titleFormat"])).collect();
    Ok((panels?, queries?))
}

fn panel(panel: &Json) -> anyhow::Result<Panel> {
    let defaults = &panel["fieldConfig"]["defaults"];
    let options = defaults["mappings"][0]["options"].as_object().cloned().unwrap_or_default();
    let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
    let color = |name: &Json| match text(name).as_str() {
        "red" => "#e0605a".to_owned(),
        "orange" => "#e8964f".to_owned(),
        "yellow" => "#e5c34b".to_owned(),
        "green" => "#5aa869".to_owned(),
        "blue" => "#5b8fc7".to_owned(),
        other => other.to_owned(),
    };
    let colors = options.iter().map(|(value, it)| (value.clone(), (text(&it["text"]), color(&it["color"]))));
    let targets = panel["targets"].as_array().cloned().unwrap_or_default();
    anyhow::ensure!(targets.len() <= 1, "a panel has one query: {panel}");
    let query =
        targets.first().map(|target| query(&panel["title"], &target["expr"], &target["legendFormat"]));
    Ok(Panel {
        kind: text(&panel["type"]),
        unit: text(&defaults["unit"]),
        stacked: defaults["custom"]["stacking"]["mode"] == "normal",
        colors: colors.collect(),
        place: ["x", "y", "w", "h"].map(|name| panel["gridPos"][name].as_f64().unwrap_or_default()),
        query: query.transpose()?,
        title: text(&panel["title"]),
    })
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

const COLUMN: f64 = 45.0;
const ROW: f64 = 26.0;
const PALETTE: [&str; 8] =
    ["#2f81b7", "#d97b29", "#3d9a50", "#c4453c", "#7b5ea7", "#8a6d3b", "#4b9da8", "#8c8c8c"];

/// An SVG of the panels with these series, which the panels' queries returned for this time range.
pub fn draw(panels: &[(Panel, Vec<Series>)], times: (f64, f64)) -> String {
    let height = panels.iter().map(|(panel, _)| (panel.place[1] + panel.place[3]) * ROW).fold(0.0, f64::max);
    let width = 24.0 * COLUMN;
    let about = "Each panel shows the results of its query, drawn from the responses of Prometheus.";
    let mut svg = begin((width, height), 11.0, "The Grafana dashboard during a rollout", about);
    rect(&mut svg, (0.0, 0.0), (width, height), "#f4f5f5");
    for (panel, series) in panels {
        let [x, y, w, h] = panel.place;
        let (x, y, w, h) = (x * COLUMN + 3.0, y * ROW + 3.0, w * COLUMN - 6.0, h * ROW - 6.0);
        let Some(query) = &panel.query else {
            text(&mut svg, (x + 4.0, y + 15.0), "start", DARK, &panel.title);
            continue;
        };
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" rx=\"3\" fill=\"#ffffff\" stroke=\"#d8d9da\"/>"
        );
        text(&mut svg, (x + 8.0, y + 16.0), "start", DARK, &panel.title);
        let plot = Plot { left: x + 44.0, top: y + 26.0, width: w - 54.0, height: h - 64.0, times };
        let mut named: Vec<_> = series.iter().map(|series| (query.name(series), series)).collect();
        named.sort_by(|a, b| a.0.cmp(&b.0));
        if panel.kind == "state-timeline" {
            plot.lanes(&mut svg, panel, &named);
        } else {
            plot.lines(&mut svg, panel, &named);
        }
        let seconds = times.1 - times.0;
        for part in 0..=4 {
            let share = f64::from(part) / 4.0;
            let label = format!("{:.0} s", seconds * share);
            text(
                &mut svg,
                (plot.left + plot.width * share, plot.top + plot.height + 14.0),
                "middle",
                LIGHT,
                &label,
            );
        }
    }
    svg + "</svg>\n"
}

/// The area of a panel's data.
struct Plot {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
    times: (f64, f64),
}

impl Plot {
    fn x(&self, time: f64) -> f64 {
        self.left + (time - self.times.0) / (self.times.1 - self.times.0) * self.width
    }

    fn lines(&self, svg: &mut String, panel: &Panel, series: &[(String, &Series)]) {
        let mut below: BTreeMap<u64, f64> = BTreeMap::new();
        let mut curves = Vec::new();
        for (name, series) in series {
            let mut points = Vec::new();
            for (time, value) in series.samples.iter().filter(|(_, value)| value.is_finite()) {
                let base = if panel.stacked { below.entry(time.to_bits()).or_default() } else { &mut 0.0 };
                points.push((*time, *base, *base + value));
                *base += value;
            }
            curves.push((name, points));
        }
        let highest = curves.iter().flat_map(|(_, points)| points).map(|point| point.2).fold(0.0, f64::max);
        let highest = if highest > 0.0 { highest * 1.1 } else { 1.0 };
        let y = |value: f64| self.top + self.height * (1.0 - value / highest);
        let bottom = y(0.0);
        let _ =
            writeln!(svg, "<path d=\"M{:.1} {bottom:.1}h{:.1}\" stroke=\"#d8d9da\"/>", self.left, self.width);
        text(
            svg,
            (self.left - 5.0, y(highest / 1.1) + 4.0),
            "end",
            LIGHT,
            &shown(highest / 1.1, &panel.unit),
        );
        text(svg, (self.left - 5.0, bottom + 4.0), "end", LIGHT, &shown(0.0, &panel.unit));
        for ((name, points), (index, color)) in curves.iter().zip(PALETTE.iter().cycle().enumerate()) {
            // A gap of the samples interrupts the line.
            let gap = 1.0;
            for part in points.chunk_by(|a, b| b.0 - a.0 < gap) {
                let at =
                    |point: &(f64, f64, f64), value: f64| format!("{:.1} {:.1}", self.x(point.0), y(value));
                let upper: Vec<_> = part.iter().map(|point| at(point, point.2)).collect();
                let _ = writeln!(
                    svg,
                    "<path d=\"M{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.5\"/>",
                    upper.join("L")
                );
                if panel.stacked {
                    let lower: Vec<_> = part.iter().rev().map(|point| at(point, point.1)).collect();
                    let _ = writeln!(
                        svg,
                        "<path d=\"M{}L{}Z\" fill=\"{color}\" fill-opacity=\"0.5\"/>",
                        upper.join("L"),
                        lower.join("L")
                    );
                }
            }
            self.legend(svg, index, name, color);
        }
    }

    fn lanes(&self, svg: &mut String, panel: &Panel, series: &[(String, &Series)]) {
        let height = self.height / series.len().max(1) as f64;
        for (lane, (name, series)) in series.iter().enumerate() {
            let top = self.top + lane as f64 * height;
            text(svg, (self.left - 5.0, top + height / 2.0 + 4.0), "end", LIGHT, name);
            let parts = series.samples.chunk_by(|a, b| a.1.to_bits() == b.1.to_bits() && b.0 - a.0 < 1.0);
            for part in parts {
                let (Some(first), Some(last)) = (part.first(), part.last()) else { continue };
                let step = 0.2;
                let (from, to) = (self.x(first.0), self.x((last.0 + step).min(self.times.1)));
                let (label, color) = panel.colors.get(&first.1.to_string()).cloned().unwrap_or_default();
                let _ = writeln!(
                    svg,
                    "<rect x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{color}\" fill-opacity=\"0.6\"/>",
                    top + 2.0,
                    to - from,
                    height - 4.0
                );
                if to - from > 6.0 * label.len() as f64 {
                    text(svg, (from + 4.0, top + height / 2.0 + 4.0), "start", DARK, &label);
                }
            }
        }
    }

    fn legend(&self, svg: &mut String, index: usize, name: &str, color: &str) {
        let x = self.left + index as f64 * 84.0;
        let y = self.top + self.height + 30.0;
        if x + 60.0 < self.left + self.width {
            rect(svg, (x, y - 6.0), (10.0, 4.0), color);
            text(svg, (x + 14.0, y), "start", LIGHT, name);
        }
    }
}

fn shown(value: f64, unit: &str) -> String {
    match unit {
        "s" => format!("{value:.0} s"),
        "percentunit" => format!("{:.0} %", value * 100.0),
        "ops" => format!("{value:.1}/s"),
        _ if value.fract() > 0.05 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}
