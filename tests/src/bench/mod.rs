//! The project's benchmarks: `cargo xtask bench`.
//!
//! They measure ratios if possible: both sides alternate in one run on one machine. The budgets are
//! those of the design document, for a release build. A debug build gets a multiple of them ([`SMOKE`]), which detects
//! slowdowns by orders of magnitude. A missed budget fails the run. `--quick` takes few samples.
//!
//! A new benchmark needs one more line in [`ALL`] and a file beside this one.

mod connect;
pub mod crowd;
mod drain_start;
mod fanout;
mod figures;
mod growth;
mod machine;
mod measurements;
mod plugin;
pub mod record;
mod rollout;
mod site;
mod watch;
mod wrapper;

use std::time::{Duration, Instant};

use anyhow::bail;
use serde::{Deserialize, Serialize};

/// The multiple of a budget that a debug build may take, also on a busy machine.
const SMOKE: f64 = 50.0;

/// A benchmark.
struct Bench {
    name: &'static str,
    about: &'static str,
    run: fn(&Settings) -> anyhow::Result<Vec<Row>>,
}

/// Every benchmark, in the order in which they run.
const ALL: &[Bench] = &[
    Bench {
        name: "plugin",
        about: "start of the provider, from exec to the handshake line",
        run: plugin::run,
    },
    Bench {
        name: "connect",
        about: "start to first answer of one wrapper, direct and through a jump host, beside OpenSSH's client",
        run: connect::run,
    },
    Bench {
        name: "fanout",
        about: "200 managers at once behind one sshd, beside the server's own work",
        run: fanout::run,
    },
    Bench { name: "watch", about: "a change on the host until our call returns", run: watch::run },
    Bench {
        name: "wrapper",
        about: "the wrapper on its host: memory, CPU, and what accumulates",
        run: wrapper::run,
    },
    Bench {
        name: "drain-start",
        about: "drains that lose a job at their start, and how long they wait for a gap between job requests",
        run: drain_start::run,
    },
    Bench {
        name: "rollout",
        about: "one apply that replaces 1 to 64 managers, by phase, beside what no tool can avoid",
        run: rollout::run,
    },
    Bench {
        name: "growth",
        about: "10 to 1,000 managers through all commands of Terraform, beside Terraform's own cost",
        run: growth::run,
    },
];

/// Settings of a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Settings {
    /// A smoke run with few samples.
    pub quick: bool,
}

impl Settings {
    /// Number of samples.
    fn samples(self, full: usize) -> usize {
        if self.quick { 2.min(full) } else { full }
    }
}

/// One measured value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub bench: String,
    pub row: String,
    pub median: f64,
    pub unit: String,
    /// Ratio to the median of the compared value in the same run.
    pub ratio: Option<f64>,
    /// Name of the compared value.
    pub against: Option<String>,
    /// The maximum in this build, in the row's unit; `None` if the design has no budget.
    pub budget: Option<f64>,
    /// The maximum of the ratio, if the budget is a ratio.
    pub ratio_budget: Option<f64>,
    pub met: Option<bool>,
}

impl Row {
    fn new(bench: &'static str, row: impl Into<String>, median: f64, unit: &'static str) -> Row {
        Row {
            bench: bench.to_owned(),
            row: row.into(),
            median,
            unit: unit.to_owned(),
            ratio: None,
            against: None,
            budget: None,
            ratio_budget: None,
            met: None,
        }
    }

    /// Compares with another median.
    fn against(self, what: impl Into<String>, median: f64) -> Row {
        Row { ratio: Some(self.median / median), against: Some(what.into()), ..self }
    }

    /// Sets the budget of the ratio.
    fn budget_ratio(self, most: f64) -> Row {
        match self.ratio {
            Some(ratio) if ratio > 0.0 => {
                let against = self.median / ratio;
                Row { ratio_budget: Some(most), ..self.budget(most * against) }
            }
            _ => self,
        }
    }

    /// Sets a maximum of the median that applies to each build, because it is not a time.
    fn limit(self, most: f64) -> Row {
        Row { budget: Some(most), met: Some(self.median <= most), ..self }
    }

    /// Sets the budget of the median.
    fn budget(self, most: f64) -> Row {
        let most = if cfg!(debug_assertions) { most * SMOKE } else { most };
        Row { budget: Some(most), met: Some(self.median <= most), ..self }
    }
}

/// Runs the benchmarks with these names, or all, and passes the name, rows and duration of each to `report` when it is done.
pub fn run(
    names: &[String],
    settings: Settings,
    mut report: impl FnMut(&str, Vec<Row>, Duration),
) -> anyhow::Result<()> {
    for name in names {
        if !ALL.iter().any(|bench| bench.name == name) {
            bail!("there is no benchmark {name}; there are:\n{}", list());
        }
    }
    for bench in ALL.iter().filter(|bench| names.is_empty() || names.iter().any(|name| name == bench.name)) {
        let start = Instant::now();
        let rows = (bench.run)(&settings)?;
        report(bench.name, rows, start.elapsed());
    }
    Ok(())
}

/// Names and purposes, for `--help`.
pub fn list() -> String {
    ALL.iter().map(|bench| format!("  {:<12} {}\n", bench.name, bench.about)).collect()
}

/// The header of the table of [`line()`]s.
pub fn head() -> String {
    format!(
        "{:<12} {:<50} {:>10} {:<4} {:>7}  {:<37} {:>9}  {}",
        "bench", "row", "median", "unit", "ratio", "against", "budget", "met"
    )
}

/// A row of the table.
pub fn line(row: &Row) -> String {
    let number =
        |value: Option<f64>, digits| value.map_or(String::new(), |value| format!("{value:.digits$}"));
    let met = match row.met {
        Some(true) => "yes",
        Some(false) => "NO",
        None => "",
    };
    format!(
        "{:<12} {:<50} {:>10} {:<4} {:>7}  {:<37} {:>9}  {met}",
        row.bench,
        row.row,
        number(Some(row.median), 3),
        row.unit,
        number(row.ratio, 2),
        row.against.as_deref().unwrap_or_default(),
        number(row.budget, 1),
    )
}

/// The median; for an even number of samples the mean of the middle two. 0 for no samples.
fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.len(), sorted.len() / 2) {
        (0, _) => 0.0,
        (length, middle) if length % 2 == 1 => sorted[middle],
        (_, middle) => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// The quantile: the value that this share of the samples does not exceed. 0 for no samples.
fn quantile(samples: &[f64], part: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or_default()
}

/// Time as milliseconds.
fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// Runs a future and returns its duration in milliseconds.
fn timed<T>(work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<(T, f64)> {
    let start = Instant::now();
    let result = work()?;
    Ok((result, milliseconds(start.elapsed())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_middle_value() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn quantile_returns_one_of_the_samples() {
        let samples: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(quantile(&samples, 0.99), 99.0);
        assert_eq!(quantile(&[7.0], 0.99), 7.0);
        assert_eq!(quantile(&[], 0.5), 0.0);
    }

    #[test]
    fn row_renders_as_json_and_table() {
        let row = Row::new("plugin", "start", 10.0, "ms").against("nothing", 5.0);
        assert_eq!(
            serde_json::to_string(&row).unwrap(),
            r#"{"bench":"plugin","row":"start","median":10.0,"unit":"ms","ratio":2.0,"against":"nothing","budget":null,"ratio_budget":null,"met":null}"#
        );
        let smoke = row.clone().budget(0.5);
        assert_eq!(smoke.met, Some(cfg!(debug_assertions)), "a debug build may take {SMOKE} times as much");
        let judged = Row { budget: Some(8.0), met: Some(false), ..row };
        assert!(line(&judged).ends_with("8.0  NO"), "{}", line(&judged));
    }

    #[test]
    fn unknown_benchmark_is_rejected() {
        let error = run(&["nonsense".to_owned()], Settings::default(), |_, _, _| ()).unwrap_err().to_string();
        assert!(error.contains("there is no benchmark nonsense") && error.contains("plugin"), "{error}");
    }
}
