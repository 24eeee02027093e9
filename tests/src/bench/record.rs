//! What `cargo xtask bench --record docs` writes into the documentation: the results as JSON, the page of all measurements, and the figures
//! of `docs/performance.md`. A test compares the pages with the results; `cargo xtask gen` writes them after a change here.

use std::{fmt::Write as _, fs, path::Path, process::Command};

use anyhow::{Context as _, bail, ensure};
use serde::{Deserialize, Serialize};

use super::{Row, figures, measurements};

/// The results, below the directory of the documents.
const RESULTS: &str = "performance/results.json";
/// The page with the most important figures.
const PAGE: &str = "performance.md";
/// The page with all results.
const MEASUREMENTS: &str = "performance/measurements.md";

/// A full run in a release build.
#[derive(Debug, Serialize, Deserialize)]
pub struct Record {
    /// Date of the run, as `YYYY-MM-DD`.
    pub date: String,
    pub machine: Machine,
    pub rows: Vec<Row>,
}

/// Where the benchmarks ran.
#[derive(Debug, Serialize, Deserialize)]
pub struct Machine {
    pub cpu: String,
    pub cores: usize,
    pub memory_gib: u64,
    pub kernel: String,
    pub openssh: String,
    pub terraform: String,
}

impl Record {
    /// These rows, measured today on this machine.
    pub fn new(rows: Vec<Row>) -> anyhow::Result<Record> {
        let today = time::OffsetDateTime::now_utc().date();
        Ok(Record { date: today.to_string(), machine: Machine::this()?, rows })
    }

    /// These rows in place of those of the same benchmarks in a record. An error if that is of another machine.
    pub fn replaced(mut self, earlier: &Record) -> anyhow::Result<Record> {
        let (here, there) = (serde_json::to_string(&self.machine)?, serde_json::to_string(&earlier.machine)?);
        ensure!(
            here == there,
            "the record is of another machine: record all benchmarks ({there}, not {here})"
        );
        let new = std::mem::take(&mut self.rows);
        for bench in super::ALL {
            let is_new = new.iter().any(|row| row.bench == bench.name);
            let source = if is_new { &new } else { &earlier.rows };
            self.rows.extend(source.iter().filter(|row| row.bench == bench.name).cloned());
        }
        Ok(self)
    }

    /// The record in this directory of documents.
    pub fn read(docs: &Path) -> anyhow::Result<Record> {
        let path = docs.join(RESULTS);
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("parse {}", path.display()))
    }

    /// Writes the results and the pages.
    ///
    /// An error if a value was not measured.
    pub fn write(&self, docs: &Path) -> anyhow::Result<()> {
        let missing = self.rows.iter().find(|row| !row.median.is_finite());
        ensure!(missing.is_none(), "not written, because of a value that was not measured: {missing:?}");
        fs::create_dir_all(docs.join("performance")).context("create the directory of the results")?;
        let json = serde_json::to_string_pretty(self)? + "\n";
        fs::write(docs.join(RESULTS), json).context("write the results")?;
        for (name, page) in self.pages(docs)? {
            fs::write(docs.join(name), page).context("write a page")?;
        }
        Ok(())
    }

    /// The path of each page below the directory of the documents, and its text.
    pub fn pages(&self, docs: &Path) -> anyhow::Result<[(&'static str, String); 2]> {
        let page = docs.join(PAGE);
        let text = fs::read_to_string(&page).with_context(|| format!("read {}", page.display()))?;
        Ok([(PAGE, self.fill(&text)?), (MEASUREMENTS, measurements::page(self)?)])
    }

    /// The page with the parts of this record, each between `<!-- recorded NAME -->` and `<!-- end -->`.
    fn fill(&self, page: &str) -> anyhow::Result<String> {
        const BEGIN: &str = "<!-- recorded ";
        const END: &str = "<!-- end -->";
        let mut parts = page.split(BEGIN);
        let mut filled = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (name, rest) = part.split_once(" -->").context("a part without a name")?;
            let (_, rest) = rest.split_once(END).with_context(|| format!("part {name} has no end"))?;
            let text = match name {
                "machine" => self.about(),
                "figures" => figures::table(self)?,
                _ => bail!("no part of a record is {name}"),
            };
            let _infallible = write!(filled, "{BEGIN}{name} -->\n\n{text}\n{END}{rest}");
        }
        Ok(filled)
    }

    /// Date and machine.
    pub(super) fn about(&self) -> String {
        let Machine { cpu, cores, memory_gib, kernel, openssh, terraform } = &self.machine;
        format!(
            "Measured on {}: {cpu}, {cores} cores, {memory_gib} GiB of memory, Linux {kernel}, {openssh}, {terraform}.\n",
            self.date
        )
    }
}

/// A number with its unit, and with three significant digits.
pub(super) fn value(number: f64, unit: &str) -> String {
    let digits = match number.abs() {
        size if size >= 99.95 || size == 0.0 => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.9995 => 2,
        _ => 3,
    };
    format!("{number:.digits$} {unit}").trim_end().to_owned()
}

impl Machine {
    fn this() -> anyhow::Result<Machine> {
        let read = |path: &str| fs::read_to_string(path).with_context(|| format!("read {path}"));
        let (processors, memory) = (read("/proc/cpuinfo")?, read("/proc/meminfo")?);
        let field = |text: &str, name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.map(|line| line.trim_start_matches([' ', '\t', ':']).to_owned())
        };
        let kib: u64 = field(&memory, "MemTotal")
            .and_then(|text| text.split_whitespace().next()?.parse().ok())
            .context("/proc/meminfo has no MemTotal")?;
        Ok(Machine {
            cpu: field(&processors, "model name").unwrap_or_else(|| "unknown CPU".to_owned()),
            cores: std::thread::available_parallelism()?.get(),
            memory_gib: kib.div_ceil(1024 * 1024),
            // The version, without the name of its build.
            kernel: read("/proc/sys/kernel/osrelease")?
                .split(|c: char| c != '.' && !c.is_ascii_digit())
                .next()
                .unwrap_or_default()
                .to_owned(),
            openssh: first_line("ssh", "-V")?,
            terraform: first_line("terraform", "version")?,
        })
    }
}

/// The first line that a program prints with this argument.
fn first_line(program: &str, argument: &str) -> anyhow::Result<String> {
    let output = Command::new(program).arg(argument).output().with_context(|| format!("run {program}"))?;
    // OpenSSH prints its version on stderr.
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    text.lines().next().map(str::to_owned).with_context(|| format!("{program} {argument} prints nothing"))
}

#[cfg(test)]
mod tests {
    use grit_testkit::generated::assert_generated;

    use super::*;

    fn docs() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
    }

    #[test]
    fn pages_show_the_recorded_results() {
        let record = Record::read(&docs()).unwrap();
        for (name, page) in record.pages(&docs()).unwrap() {
            assert_generated(&docs().join(name), &page);
        }
    }

    #[test]
    fn every_benchmark_has_a_section() {
        let names = |names: Vec<&'static str>| std::collections::BTreeSet::from_iter(names);
        let sections = names(measurements::ALL.iter().map(|section| section.bench).collect());
        assert_eq!(sections, names(super::super::ALL.iter().map(|bench| bench.name).collect()));
    }

    #[test]
    fn rows_of_one_benchmark_are_replaced() {
        let row = |bench, value| Row::new(bench, "row", value, "ms");
        let earlier = Record::new(vec![row("plugin", 1.0), row("connect", 2.0)]).unwrap();
        let record = Record::new(vec![row("connect", 3.0)]).unwrap().replaced(&earlier).unwrap();
        assert_eq!(record.rows, [row("plugin", 1.0), row("connect", 3.0)]);

        let mut other = Record::new(Vec::new()).unwrap();
        other.machine.cores += 1;
        let error = record.replaced(&other).unwrap_err().to_string();
        assert!(error.contains("another machine"), "{error}");
    }

    #[test]
    fn values_have_three_significant_digits() {
        for (number, text) in [
            (2839.553, "2840 ms"),
            (34.586, "34.6 ms"),
            (5.4321, "5.43 ms"),
            (0.1094, "0.109 ms"),
            (0.0, "0 ms"),
        ] {
            assert_eq!(value(number, "ms"), text);
        }
    }
}
