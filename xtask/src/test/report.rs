//! The results of the tests.

use std::{cmp::Reverse, collections::BTreeSet, fs, io, path::PathBuf, time::Duration};

use anyhow::Context as _;

/// The number of tests in each table of the report.
const SLOWEST: usize = 10;

/// The sum of all runs.
#[derive(Debug)]
pub(crate) struct Report {
    /// The file to which tests add a line for what they could not test.
    file: PathBuf,
    passed: usize,
    ignored: usize,
    failed: Vec<String>,
    /// The number of tests without coverage.
    tests_failed: usize,
    /// What was not tested: test and reason.
    not_covered: BTreeSet<(String, String)>,
    /// The number of tests in it, and of other entries.
    tests_not_covered: usize,
    set_up_not_covered: usize,
    /// Name, wall time and CPU time.
    times: Vec<(String, Duration, Duration)>,
}

/// The test counts of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) ignored: usize,
}

impl Tally {
    /// Reads libtest's line `test result: ok. 1 passed; 0 failed; 0 ignored; …`.
    pub(crate) fn parse(output: &str) -> Option<Tally> {
        let line = output.lines().rev().find_map(|line| line.trim().strip_prefix("test result: "))?;
        let number = |word: &str| -> Option<usize> {
            line.split([';', '.']).find_map(|part| part.trim().strip_suffix(word)?.trim().parse().ok())
        };
        Some(Tally { passed: number("passed")?, failed: number("failed")?, ignored: number("ignored")? })
    }
}

impl Report {
    /// Creates a report, with an empty file for what is not tested.
    pub(crate) fn new(file: PathBuf) -> anyhow::Result<Report> {
        match fs::remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot remove {}", file.display()));
            }
            _ => {}
        }
        Ok(Report {
            file,
            passed: 0,
            ignored: 0,
            failed: Vec::new(),
            tests_failed: 0,
            not_covered: BTreeSet::new(),
            tests_not_covered: 0,
            set_up_not_covered: 0,
            times: Vec::new(),
        })
    }

    /// Adds the result of a process.
    pub(crate) fn ended(&mut self, name: &str, tally: Tally, failed: bool, took: Duration, cpu: Duration) {
        self.passed += tally.passed;
        self.ignored += tally.ignored;
        if failed {
            self.failed.push(name.to_owned());
            self.tests_failed += tally.failed.max(1);
        }
        self.times.push((name.to_owned(), took, cpu));
    }

    /// Adds an entry that is not a test.
    pub(crate) fn not_set_up(&mut self, step: &str, why: String) {
        self.set_up_not_covered += 1;
        self.not_covered.insert((step.to_owned(), why));
    }

    /// Adds a test that no core of this run can run.
    pub(crate) fn not_run(&mut self, test: &str, why: String) {
        self.tests_not_covered += 1;
        self.not_covered.insert((test.to_owned(), why));
    }

    /// Reads the lines of the tests. A test that wrote a line and passed counts as not covered, not as passed.
    pub(crate) fn collect(&mut self) -> anyhow::Result<()> {
        let text = match fs::read_to_string(&self.file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other.with_context(|| format!("cannot read {}", self.file.display()))?,
        };
        let mut tests = BTreeSet::new();
        for line in text.lines() {
            let (test, why) = line.split_once('\t').unwrap_or(("a test", line));
            tests.insert(test.to_owned());
            self.not_covered.insert((test.to_owned(), why.to_owned()));
        }
        self.tests_not_covered += tests.len();
        self.passed = self.passed.saturating_sub(tests.len());
        Ok(())
    }

    /// What is not covered and has no line in this list. A line has the name of a test or step, without the core. A comment begins with `#`.
    pub(crate) fn not_covered_beside(&self, list: &str) -> Vec<String> {
        let known: BTreeSet<&str> =
            list.lines().map(str::trim).filter(|line| !line.starts_with('#')).collect();
        let entries = self.not_covered.iter();
        entries
            .filter(|(name, _)| !known.contains(name.split(" on ").next().unwrap_or(name)))
            .map(|(name, why)| format!("{name}: {why}"))
            .collect()
    }

    pub(crate) fn failures(&self) -> &[String] {
        &self.failed
    }

    /// Prints the slowest tests, what is not covered, and one summary line.
    pub(crate) fn print(&self) {
        let mut times: Vec<_> = self.times.iter().collect();
        times.sort_unstable_by_key(|(_, took, _)| Reverse(*took));
        println!("\nSlowest tests:");
        for (name, took, _) in times.iter().take(SLOWEST) {
            println!("{:>8.1} s  {name}", took.as_secs_f64());
        }
        times.sort_unstable_by_key(|(.., cpu)| Reverse(*cpu));
        let all: Duration = times.iter().map(|(.., cpu)| cpu).sum();
        println!("\nMost CPU time, of {:.1} s:", all.as_secs_f64());
        for (name, _, cpu) in times.iter().take(SLOWEST) {
            println!("{:>8.1} s  {name}", cpu.as_secs_f64());
        }
        if !self.not_covered.is_empty() {
            println!("\nNot covered on this host:");
            for (who, why) in &self.not_covered {
                println!("  {who}: {why}");
            }
        }
        if !self.failed.is_empty() {
            println!("\nFailed:");
            self.failed.iter().for_each(|name| println!("  {name}"));
        }
        println!("\n{}", self.line());
    }

    fn line(&self) -> String {
        let ignored = match self.ignored {
            0 => String::new(),
            ignored => format!(", {ignored} ignored"),
        };
        let not_covered = match self.set_up_not_covered {
            0 => format!("{} not covered", self.tests_not_covered),
            missing => format!("{} not covered, {missing} missing dependencies", self.tests_not_covered),
        };
        format!("tests: {} passed, {} failed, {not_covered}{ignored}", self.passed, self.tests_failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_line_is_parsed() {
        let output = "\nrunning 3 tests\n...\n\ntest result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 188 filtered out; finished in 0.01s\n\n";
        assert_eq!(Tally::parse(output), Some(Tally { passed: 2, failed: 0, ignored: 1 }));
        let failed = "test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s";
        assert_eq!(Tally::parse(failed), Some(Tally { passed: 0, failed: 1, ignored: 0 }));
        assert_eq!(Tally::parse("Killed"), None);
    }

    #[test]
    fn test_that_could_not_run_is_not_passed() {
        let file = std::env::temp_dir().join(format!("grit-report-{}", std::process::id()));
        let mut report = Report::new(file.clone()).unwrap();
        report.ended("a", Tally { passed: 3, ..Tally::default() }, false, Duration::ZERO, Duration::ZERO);
        report.ended("b", Tally { failed: 1, ..Tally::default() }, true, Duration::ZERO, Duration::ZERO);
        let lines = "a::x\tthe cable, because there is no ip\na::x\tand more\na::x on 1.6.6\tthe cable\n";
        fs::write(&file, lines).unwrap();
        report.collect().unwrap();
        fs::remove_file(file).unwrap();
        assert_eq!(report.line(), "tests: 1 passed, 1 failed, 2 not covered");
        report.not_run("e2e open_tofu", "no core of this run has it".to_owned());
        report.not_set_up("cores", "no network".to_owned());
        assert_eq!(report.line(), "tests: 1 passed, 1 failed, 3 not covered, 1 missing dependencies");
        let known = "# without a network\ncores\n  a::x\n\n#e2e open_tofu\n";
        assert_eq!(report.not_covered_beside(known), ["e2e open_tofu: no core of this run has it"]);
    }
}
