//! `cargo xtask bench`. See `grit_tests::bench`.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::process::ExitCode;

use clap::Parser;
use grit_tests::bench::{self, Row, Settings};

/// Measures the project against its budgets.
#[derive(Debug, Parser)]
#[command(after_help = format!("Benchmarks:\n{}", bench::list()))]
struct Bench {
    /// Which to run; all when none is named.
    names: Vec<String>,
    /// A smoke run with few samples.
    #[arg(long)]
    quick: bool,
    /// One JSON object per line instead of a table.
    #[arg(long)]
    json: bool,
    /// Be the client of `fanout`, which runs in a process of its own.
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
    match &outcome {
        // A missed budget is a finding and not a failure: machines differ, and a busy one misses more.
        Ok(()) if missed > 0 => eprintln!("{missed} budgets were not met"),
        Ok(()) if cfg!(debug_assertions) => eprintln!("debug build: budgets are not judged"),
        Ok(()) | Err(_) => {}
    }
    ended(outcome)
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
