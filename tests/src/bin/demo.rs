//! `cargo xtask demo`. See `grit_tests::lab::demo`.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::process::ExitCode;

use clap::Parser;
use grit_tests::lab::demo;

/// A complete rollout on this machine: deploy version 1 under load, roll to version 2 in one apply, destroy.
#[derive(Debug, Parser)]
struct Demo {
    #[command(flatten)]
    options: demo::Options,
}

fn main() -> ExitCode {
    match demo::run(&Demo::parse().options) {
        Ok(tally) => {
            println!("jobs: {} finished, {} lost", tally.finished, tally.lost);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}
