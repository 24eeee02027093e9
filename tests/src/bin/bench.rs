//! `cargo xtask bench`. See `grit_tests::bench`.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::process::ExitCode;

use clap::Parser;
use grit_tests::bench::{self, Row, Settings};

/// Measures the project against its budgets.
#[derive(Debug, Parser)]
#[command(after_help = format!("Benchmarks:\n{}", bench::list()))]
struct Bench {
    /// The benchmarks to run; all if none is named.
    names: Vec<String>,
    /// A smoke run with few samples.
    #[arg(long)]
    quick: bool,
    /// One JSON object per line instead of a table.
    #[arg(long)]
    json: bool,
    /// Run as the client process of `fanout`.
    #[arg(long, hide = true)]
    crowd: bool,
}

fn main() -> ExitCode {
    let arguments = Bench::parse();
    if arguments.crowd {
        return ended(bench::crowd::main());
    }
    if !arguments.json {
        println!("{}", bench::head());
    }
    let mut missed = 0;
    let settings = Settings { quick: arguments.quick };
    let outcome = bench::run(&arguments.names, settings, |row: &Row| {
        missed += usize::from(row.met == Some(false));
        match serde_json::to_string(row) {
            Ok(json) if arguments.json => println!("{json}"),
            _ => println!("{}", bench::line(row)),
        }
    });
    ended(outcome.and_then(|()| match missed {
        0 => Ok(()),
        // A slow or busy machine misses more budgets, so the user has to decide about the reason.
        missed => Err(anyhow::anyhow!("{missed} budgets were not met")),
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
