//! The figures of `docs/performance.md`, from the record.

use std::fmt::Write as _;

use anyhow::Context as _;

use super::record::{Record, value};

/// A figure: what it is, its value, and the section of the measurements that has it. `{BENCH/ROW}` is the median of a row.
struct Figure(&'static str, &'static str, &'static str);

const ALL: [Figure; 10] = [
    Figure(
        "time that provider and wrapper add to a rollout of 1 manager",
        "{rollout/1: overhead over the ideal and Terraform}",
        "Rollout",
    ),
    Figure(
        "time that provider and wrapper add to a rollout of 64 managers on one machine",
        "{rollout/64: overhead over the ideal and Terraform}",
        "Rollout",
    ),
    Figure(
        "`terraform destroy` of 64 managers with short jobs",
        "{rollout/64: terraform destroy}; with `-parallelism=64`: {rollout/64: terraform destroy -parallelism=64}",
        "Rollout",
    ),
    Figure(
        "busy runner: time from the request of a drain to SIGQUIT",
        "{drain-start/busy: request to SIGQUIT, median}, at most {drain-start/busy: request to SIGQUIT, maximum}",
        "Start of a drain",
    ),
    Figure(
        "busy runner: drains that lose a job at their start",
        "{drain-start/busy: drains of 200 with a lost job} of 200; without the wait for a gap: \
         {drain-start/busy, SIGQUIT at once: drains of 200 with a lost job} of 200",
        "Start of a drain",
    ),
    Figure(
        "connection and first response",
        "direct: {connect/first answer: direct, unix socket}; one jump host: \
         {connect/first answer: proxy_jump}; OpenSSH's client: \
         {connect/first answer: ssh -W, curve25519}",
        "Connections",
    ),
    Figure(
        "connections to 200 managers behind one sshd",
        "{fanout/200: wall}, {fanout/200: client memory per connection} of memory for each connection",
        "Connections to many managers",
    ),
    Figure(
        "plan without changes",
        "100 managers with a drain each: {growth/100 drains: plan without changes}; 1,000 managers in one health check, \
         without drains: {growth/1000 in a map: plan without changes}",
        "Growth",
    ),
    Figure(
        "memory of the provider",
        "10 managers: {growth/10 drains: memory of the provider, peak}; 100 managers: \
         {growth/100 drains: memory of the provider, peak}; 1,000 managers: {growth/1000 in a map: memory of the provider, peak}",
        "Growth",
    ),
    Figure(
        "the wrapper on its host",
        "{wrapper/memory, runner running (RSS)} of memory, {wrapper/CPU a second} of CPU time in each second",
        "Wrapper",
    ),
];

/// The table of all figures.
pub(super) fn table(record: &Record) -> anyhow::Result<String> {
    let mut table = "| what | figure | measurements |\n| --- | --- | --- |\n".to_owned();
    for Figure(what, template, section) in &ALL {
        let mut figure = String::new();
        for part in template.split_inclusive('}') {
            let (text, row) = part.split_once('{').unwrap_or((part, ""));
            figure += text;
            if let Some((bench, row)) = row.trim_end_matches('}').split_once('/') {
                figure += &median(record, bench, row)?;
            }
        }
        let anchor = section.to_lowercase().replace(' ', "-");
        let _infallible =
            writeln!(table, "| {what} | {figure} | [{section}](performance/measurements.md#{anchor}) |");
    }
    Ok(table)
}

fn median(record: &Record, bench: &str, row: &str) -> anyhow::Result<String> {
    let found = record.rows.iter().find(|it| it.bench == bench && it.row == row);
    let row = found.with_context(|| format!("the record has no row {row} of {bench}"))?;
    Ok(match row.unit.as_str() {
        "ms" if row.median >= 999.5 => value(row.median / 1000.0, "s"),
        // A number of drains.
        "" => format!("{:.0}", row.median),
        unit => value(row.median, unit),
    })
}
