//! `docs/performance/measurements.md`: a section for each benchmark.

use std::fmt::Write as _;

use anyhow::ensure;

use super::record::{Record, value};

/// The section of a benchmark.
pub(super) struct Section {
    pub(super) bench: &'static str,
    title: &'static str,
    /// What the table shows, in one paragraph of lines.
    about: &'static str,
}

/// Every section, in the order of the page.
pub(super) const ALL: &[Section] = &[
    Section {
        bench: "rollout",
        title: "Rollout",
        about: "\
One apply replaces 1 to 64 runner managers, each with one running job. *Ideal* is the time that every tool needs: the new runners start, the last job
ends, the old instances are removed. *Overhead* is the rest; Terraform's part of the overhead is measured with the same graph of `terraform_data`. The
health check starts all drains; `terraform destroy` drains 10 runners at a time. All hosts share one machine: with 64 managers, 128 hosts run on it.",
    },
    Section {
        bench: "drain-start",
        title: "Start of a drain",
        about: "\
How many drains lose a job, and how long the wrapper waits for a gap between job requests. GitLab responds after 0.3 s. Each runner has four workers
and `request_concurrency = 4`. *Busy*: more jobs of 3 s than workers. *SIGQUIT at once*: the same, with `--request-gap-timeout=0s`. *Without gaps*: jobs of
0.5 s, so that a request is always open. *Long poll*: GitLab holds a request without a job for up to 50 s. *Assigned at the end*: GitLab never does this.",
    },
    Section {
        bench: "connect",
        title: "Connections",
        about: "\
Time from the start of a connection to the first response of a wrapper. OpenSSH's client is measured in the same run.",
    },
    Section {
        bench: "fanout",
        title: "Connections to many managers",
        about: "\
Connections to 200 managers behind one sshd at the same time, compared with the CPU time of the server.",
    },
    Section {
        bench: "growth",
        title: "Growth",
        about: "\
All commands with 10 to 1,000 managers. *Drains*: a drain resource for each manager, compared with the same graph of `terraform_data`. *In a map*: the
layout with a directory for each version, which has two objects for any number of managers.",
    },
    Section {
        bench: "watch",
        title: "Changes on the host",
        about: "\
Time from the exit of the runner until the provider has received it from grit-wrapper.",
    },
    Section {
        bench: "plugin",
        title: "Provider",
        about: "\
The start of the provider.",
    },
    Section {
        bench: "wrapper",
        title: "Wrapper",
        about: "\
The wrapper with a running runner, which it probes every 5 s. *After the first day*: the probes, scrapes of metrics, calls and watches of a week, in a
short time.",
    },
];

/// The page.
pub(super) fn page(record: &Record) -> anyhow::Result<String> {
    let mut page = format!(
        "<!-- Written by `cargo xtask bench --record docs` from results.json: see tests/src/bench/measurements.rs. -->\n\n\
         # Measurements\n\n\
         All results of the benchmarks. [Performance](../performance.md) has the most important ones, and describes how to repeat them.\n\n{}",
        record.about()
    );
    for Section { bench, title, about } in ALL {
        let _infallible = write!(page, "\n## {title}\n\n{about}\n");
        let _infallible = write!(page, "\n{}", table(record, bench)?);
    }
    Ok(page)
}

fn table(record: &Record, bench: &str) -> anyhow::Result<String> {
    let rows: Vec<_> = record.rows.iter().filter(|row| row.bench == bench).collect();
    ensure!(!rows.is_empty(), "the record has no row of the benchmark {bench}");
    let mut table =
        "| measurement | median | ratio | compared with | budget | met |\n| --- | --: | --: | --- | --: | --- |\n"
            .to_owned();
    for row in rows {
        let met = row.met.map_or("", |met| if met { "yes" } else { "**no**" });
        let budget = match (row.ratio_budget, row.budget) {
            (Some(ratio), _) => format!("{ratio:.2} x"),
            (None, Some(budget)) => value(budget, &row.unit),
            (None, None) => String::new(),
        };
        let _infallible = writeln!(
            table,
            "| {} | {} | {} | {} | {budget} | {met} |",
            row.row,
            value(row.median, &row.unit),
            row.ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}")),
            row.against.as_deref().unwrap_or_default(),
        );
    }
    Ok(table)
}
