//! Bar charts of results, as SVG.

use grit_testkit::svg::{DARK, begin, rect, text};

use super::{Row, record::value};

/// A chart of `docs/performance.md` or `docs/performance/measurements.md`.
pub(super) struct Chart {
    /// Name of the file, without `.svg`.
    pub(super) name: &'static str,
    title: &'static str,
    bench: &'static str,
    shape: Shape,
}

enum Shape {
    /// One bar for each row with this prefix. Rows whose rest begins with one of these words are peers.
    Rows { prefix: &'static str, peers: &'static [&'static str] },
    /// Two bars for each row in milliseconds with this prefix and suffix: the row, and the value that it is compared with, if that begins
    /// with this word.
    Pairs { prefix: &'static str, suffix: &'static str, peer: &'static str },
    /// One bar for each number before `: ` in these rows, with a part for each row.
    Stack { parts: &'static [(&'static str, &'static str)] },
}

const OURS: &str = "#2f81b7";
const PEER: &str = "#aab4be";

/// Every chart.
pub(super) const ALL: &[Chart] = &[
    Chart {
        name: "plugin",
        title: "60 drain resources (grey: 60 resources of the smallest external provider)",
        bench: "plugin",
        shape: Shape::Pairs { prefix: "", suffix: "", peer: "60 lab_minimal" },
    },
    Chart {
        name: "connect",
        title: "Start to the first response of a wrapper, by connection method (grey: OpenSSH's client)",
        bench: "connect",
        shape: Shape::Rows { prefix: "first answer: ", peers: &["ssh"] },
    },
    Chart {
        name: "fanout",
        title: "Connections to 1 to 200 managers behind one sshd (grey: as many ssh clients)",
        bench: "fanout",
        shape: Shape::Pairs { prefix: "", suffix: ": wall", peer: "ssh -W" },
    },
    Chart {
        name: "rollout",
        title: "One apply that replaces 1 to 64 managers (grey: what every tool needs)",
        bench: "rollout",
        shape: Shape::Stack {
            parts: &[
                ("of it: start of Terraform to first instance", "#7b5ea7"),
                ("ideal: boot until all runners poll", "#d0d7de"),
                ("of it: last runner polls to first SIGQUIT", "#2f81b7"),
                ("of it: first SIGQUIT to last", "#4b9da8"),
                ("ideal: last SIGQUIT to last exit", "#aab4be"),
                ("of it: last exit to first removal", "#d97b29"),
                ("ideal: removal of the instances", "#d0d7de"),
                ("of it: last removal to end of Terraform", "#7b5ea7"),
            ],
        },
    },
    Chart {
        name: "growth",
        title: "Commands with 100 managers and their drain resources (grey: the same graph of terraform_data)",
        bench: "growth",
        shape: Shape::Pairs { prefix: "100 drains: ", suffix: "", peer: "terraform_data" },
    },
    Chart {
        name: "peers",
        title: "Memory of a supervisor with one process (grey: other supervisors)",
        bench: "peers",
        shape: Shape::Rows {
            prefix: "memory (RSS): ",
            peers: &["runit", "s6", "supervisord", "systemd", "upstream"],
        },
    },
];

/// A bar: its label, its parts with their colours, and its unit.
struct Bar<'a> {
    label: String,
    parts: Vec<(f64, &'a str)>,
    unit: &'a str,
}

impl Chart {
    /// The SVG; `None` without rows for it.
    pub(super) fn draw(&self, rows: &[Row]) -> Option<String> {
        let rows: Vec<_> = rows.iter().filter(|row| row.bench == self.bench).collect();
        let bars = match &self.shape {
            Shape::Rows { prefix, peers } => rows
                .iter()
                .filter_map(|row| {
                    let label = row.row.strip_prefix(prefix)?;
                    let is_peer = peers.iter().any(|peer| label.starts_with(peer));
                    let color = if is_peer { PEER } else { OURS };
                    Some(Bar { label: label.to_owned(), parts: vec![(row.median, color)], unit: &row.unit })
                })
                .collect(),
            Shape::Pairs { prefix, suffix, peer } => rows
                .iter()
                .filter(|row| {
                    row.unit == "ms" && row.against.as_deref().is_some_and(|it| it.starts_with(peer))
                })
                .filter_map(|row| {
                    let label = row.row.strip_prefix(prefix)?.strip_suffix(suffix)?;
                    let theirs = row.median / row.ratio?;
                    let bar = |label: String, value, color| Bar {
                        label,
                        parts: vec![(value, color)],
                        unit: &row.unit,
                    };
                    Some([
                        bar(label.to_owned(), row.median, OURS),
                        bar(format!("{label}: {peer}"), theirs, PEER),
                    ])
                })
                .flatten()
                .collect(),
            Shape::Stack { parts } => stacked(&rows, parts),
        };
        (!bars.is_empty()).then(|| svg(self.title, &bars, self.legend()))
    }

    fn legend(&self) -> &'static [(&'static str, &'static str)] {
        match &self.shape {
            Shape::Stack { parts } => parts,
            _ => &[],
        }
    }
}

fn stacked<'a>(rows: &[&'a Row], parts: &[(&str, &'static str)]) -> Vec<Bar<'a>> {
    let named = |name: &str| rows.iter().find(|row| row.row == name);
    let (first, _) = parts[0];
    let numbers = rows.iter().filter_map(|row| row.row.strip_suffix(first)?.strip_suffix(": "));
    numbers
        .map(|number| {
            let part = |(part, color): &(&str, &'static str)| {
                Some((named(&format!("{number}: {part}"))?.median, *color))
            };
            Bar { label: number.to_owned(), parts: parts.iter().filter_map(part).collect(), unit: "ms" }
        })
        .collect()
}

const WIDTH: f64 = 860.0;
const LABELS: f64 = 270.0;
const VALUES: f64 = 80.0;
const STEP: f64 = 22.0;
const TOP: f64 = 34.0;

fn svg(title: &str, bars: &[Bar<'_>], legend: &[(&str, &str)]) -> String {
    let total = |bar: &Bar<'_>| bar.parts.iter().map(|(value, _)| value).sum::<f64>();
    let longest = bars.iter().map(total).fold(f64::MIN_POSITIVE, f64::max);
    let scale = (WIDTH - LABELS - VALUES) / longest;
    let bottom = TOP + bars.len() as f64 * STEP;
    let height = bottom + 14.0 + legend.len().div_ceil(2) as f64 * 16.0;
    let about = "docs/performance/measurements.md has the same values in tables.";
    let mut svg = begin((WIDTH, height), 11.0, title, about);
    text(&mut svg, (12.0, 20.0), "start", DARK, title);
    for (row, bar) in bars.iter().enumerate() {
        let y = TOP + row as f64 * STEP;
        text(&mut svg, (LABELS - 8.0, y + 13.0), "end", DARK, &bar.label);
        let mut x = LABELS;
        for (value, color) in &bar.parts {
            rect(&mut svg, (x, y), (value * scale, STEP - 6.0), color);
            x += value * scale;
        }
        text(&mut svg, (x + 6.0, y + 13.0), "start", DARK, &value(total(bar), bar.unit));
    }
    for (place, (name, color)) in legend.iter().enumerate() {
        let x = LABELS + (place % 2) as f64 * 290.0;
        let y = bottom + 6.0 + (place / 2) as f64 * 16.0;
        rect(&mut svg, (x, y), (10.0, 10.0), color);
        text(&mut svg, (x + 15.0, y + 9.0), "start", DARK, name);
    }
    svg + "</svg>\n"
}
