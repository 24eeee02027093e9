//! `cargo xtask bench`. See `grit_tests::bench`. It also contains the stand-ins: see `grit_tests::programs`.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;
use grit_tests::{
    bench::{self, Settings, record::Record},
    programs,
};

/// Measures the project against its budgets.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask bench", after_help = format!("Benchmarks:\n{}", bench::list()))]
struct Bench {
    /// The benchmarks to run; all if none is named.
    names: Vec<String>,
    /// A smoke run with few samples.
    #[arg(long)]
    quick: bool,
    /// One JSON object per line instead of a table.
    #[arg(long)]
    json: bool,
    /// Write the results and tables into this directory of documents. With names, the other benchmarks keep their results.
    #[arg(long, value_name = "DIR", conflicts_with = "quick")]
    record: Option<PathBuf>,
    /// Run as the client process of `fanout`.
    #[arg(long, hide = true)]
    crowd: bool,
}

fn main() -> ExitCode {
    if let Some(ended) = programs::by_file_name() {
        return ended;
    }
    let arguments = Bench::parse();
    if arguments.crowd {
        return ended(bench::crowd::main());
    }
    if !arguments.json {
        println!("{}", bench::head());
    }
    let mut rows = Vec::new();
    let settings = Settings { quick: arguments.quick };
    let outcome = bench::run(&arguments.names, settings, |name, new, took| {
        for row in &new {
            match serde_json::to_string(row) {
                Ok(json) if arguments.json => println!("{json}"),
                _ => println!("{}", bench::line(row)),
            }
        }
        eprintln!("{name}: {:.0} s", took.as_secs_f64());
        rows.extend(new);
    });
    let missed: Vec<_> = rows
        .iter()
        .filter(|row| row.met == Some(false))
        .map(|row| format!("{}: {}", row.bench, row.row))
        .collect();
    let recorded = outcome.and_then(|()| match &arguments.record {
        Some(docs) if arguments.names.is_empty() => Record::new(rows)?.write(docs),
        Some(docs) => Record::new(rows)?.replaced(&Record::read(docs)?)?.write(docs),
        None => Ok(()),
    });
    ended(recorded.and_then(|()| match missed.len() {
        0 => Ok(()),
        // A slow or busy machine misses more budgets, so the user has to decide about the reason.
        number => Err(anyhow::anyhow!("{number} budgets were not met: {}", missed.join("; "))),
    }))
}

fn ended(outcome: anyhow::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
