//! The limits that the documents state, and that invariants excuse: where each is stated, and how often it happens.

use std::collections::BTreeMap;

/// The number of seeds from which on what happens too rarely is a problem: the faults that lead to it may have become unreachable.
pub(super) const MANY: u64 = 10_000;

/// Of fewer seeds, no number says anything.
const FEW: u64 = 100;

/// A limit.
struct Limit {
    /// What a run counts, after `limit: `. `*` stands for any text.
    name: &'static str,
    /// The file below `docs/`, and the heading.
    stated_in: (&'static str, &'static str),
    /// The smallest and the largest number of seeds in 1,000 that count it. Measured in 40,000 seeds, and about a quarter and the triple of it.
    per_1000: (f64, f64),
}

const STATE_FILE: (&str, &str) = ("wrapper/reference.md", "## State file");
const OUTCOME: (&str, &str) = ("wrapper/draining.md", "### Outcome of a drain");
const RECEIPT: (&str, &str) = ("guides/drain-start.md", "## The receipt");
const DRAIN: (&str, &str) = ("resources/runner_drain.md", "## Limits");
const CANNOT: (&str, &str) = ("guides/limits.md", "## What the provider cannot prevent");

const LIMITS: [Limit; 29] = [
    limit("SIGQUIT after SIGTERM, which the state file did not have", STATE_FILE, (0.1, 2.0)),
    limit("*, which the state file did not have", STATE_FILE, (0.0, 2.0)),
    limit("SIGTERM was saved, and not sent: killed in between", STATE_FILE, (0.0, 1.5)),
    limit("a drain is cancelled whose SIGQUIT could not be saved", STATE_FILE, (0.0, 0.5)),
    limit("a drain reached a host of another owner with the address of a lost one", DRAIN, (0.4, 5.0)),
    limit(
        "a runner is drained again: its start was lost with the state file, or its host has rebooted",
        STATE_FILE,
        (0.5, 6.0),
    ),
    limit(
        "a runner that aborts its jobs loses its wrapper, and ends without its cleanup",
        ("wrapper/running.md", "## The command"),
        (8.0, 60.0),
    ),
    limit(
        "second runner beside one that drains: the state file could not be written",
        STATE_FILE,
        (2.0, 18.0),
    ),
    limit("second runner beside one that drains: the state file was removed", STATE_FILE, (0.3, 4.0)),
    limit("exit code unknown: another process has exited before a wrapper looked", OUTCOME, (0.5, 6.0)),
    limit("exit code unknown: the command of ExecStopPost could not write it", OUTCOME, (0.4, 5.0)),
    limit("exit code unknown: the host was rebooted", STATE_FILE, (2.0, 25.0)),
    limit("clean after aborted jobs, which no probe has shown", OUTCOME, (1.0, 12.0)),
    limit("clean after a lost result, which no probe has shown", OUTCOME, (10.0, 90.0)),
    limit("clean, with a lost job: *", ("guides/drain-start.md", "## Limits"), (0.2, 4.0)),
    limit("results_lost after the last attempt has succeeded", OUTCOME, (0.0, 1.0)),
    limit("results_lost after a list that was read before the drain", OUTCOME, (0.0, 0.5)),
    limit("results_lost, because systemd did not respond at the exit", OUTCOME, (0.0, 1.0)),
    limit(
        "processes of jobs are left: the wrapper was killed in a forceful stop",
        ("wrapper/draining.md", "### Processes that a runner leaves behind"),
        (1.0, 14.0),
    ),
    limit("its host was not reachable after the receipt, and has started a runner", CANNOT, (0.0, 0.5)),
    limit("its host has started a runner after its last status was read", CANNOT, (0.0, 0.5)),
    limit("lost job of a project that the token does not show", RECEIPT, (0.5, 12.0)),
    limit("a warning names a job of the instance that has the address of a lost one", RECEIPT, (0.0, 1.5)),
    limit("the receipt is of the instance that has the address of a lost one", RECEIPT, (2.0, 20.0)),
    limit("a job was moved between two pages of the list", RECEIPT, (0.0, 0.5)),
    limit("Terraform was killed while a lost job was queued again", RECEIPT, (0.0, 0.5)),
    limit("a job was assigned after the receipt of a clean drain", RECEIPT, (0.0, 0.5)),
    limit("lost job of a runner that was started after the drain", RECEIPT, (0.0, 0.5)),
    limit("lost job of a lost instance", CANNOT, (0.0, 1.0)),
];

const fn limit(name: &'static str, stated_in: (&'static str, &'static str), per_1000: (f64, f64)) -> Limit {
    Limit { name, stated_in, per_1000 }
}

impl Limit {
    fn is(&self, what: &str) -> bool {
        match self.name.split_once('*') {
            Some((head, tail)) => what.starts_with(head) && what.ends_with(tail),
            None => what == self.name,
        }
    }
}

/// What is wrong with the limits that so many seeds have counted: one that has no row, or happens too often or, in many seeds, too rarely.
pub(super) fn problems(counts: &BTreeMap<String, u64>, seeds: u64) -> Vec<String> {
    let mut found = [0; LIMITS.len()];
    let mut problems = Vec::new();
    for (what, times) in counts {
        let Some(what) = what.strip_prefix("limit: ") else { continue };
        match LIMITS.iter().position(|limit| limit.is(what)) {
            Some(row) => found[row] += times,
            None => problems.push(format!("a limit that no document states: {what}")),
        }
    }
    for (limit, times) in LIMITS.iter().zip(found) {
        let [smallest, largest] =
            [limit.per_1000.0, limit.per_1000.1].map(|rate| rate * seeds as f64 / 1000.0);
        // A part of the suite has few seeds: three standard deviations more, and one.
        if seeds >= FEW && times as f64 > largest + 3.0 * largest.sqrt() + 1.0 {
            problems.push(format!("in {times} of {seeds} seeds, more than {largest:.1}: {}", limit.name));
        }
        if seeds >= MANY && (times as f64) < smallest {
            problems.push(format!("in {times} of {seeds} seeds, less than {smallest:.1}: {}", limit.name));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_is_stated_in_a_document() {
        let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
        for limit in &LIMITS {
            let (file, heading) = limit.stated_in;
            let text = std::fs::read_to_string(docs.join(file)).unwrap();
            assert!(text.lines().any(|line| line == heading), "{}: no {heading} in {file}", limit.name);
        }
    }

    #[test]
    fn unknown_frequent_and_rare_limits_are_problems() {
        let counted = |what: &str, times| BTreeMap::from([(format!("limit: {what}"), times)]);
        let reboot = "exit code unknown: the host was rebooted";
        assert_eq!(problems(&counted(reboot, 8), 1_000), [""; 0]);
        assert!(problems(&counted(reboot, 50), 1_000)[0].contains("in 50 of 1000 seeds"));
        assert!(problems(&counted("the weather", 1), 1_000)[0].contains("no document"));
        let rare = problems(&counted(reboot, 19), MANY);
        assert!(
            rare.iter().any(|problem| problem.contains(&format!("less than 20.0: {reboot}"))),
            "{rare:?}"
        );
        assert_eq!(
            problems(&counted("SIGHUP after SIGTERM, which the state file did not have", 1), 250),
            [""; 0]
        );
    }
}
