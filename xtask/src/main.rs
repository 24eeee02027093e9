//! The project's commands: `cargo xtask demo | test | bench | package | gen`.
//!
//! Kept small, on std, so that a fresh clone can run them after compiling next to nothing: what a command does lives in the
//! crates, and this program builds and starts it.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command for people")]

mod bench;
mod demo;
mod generate;
mod package;
mod setup;
mod steps;
mod test;

use std::process::ExitCode;

const USAGE: &str = "\
Usage: cargo xtask COMMAND

  demo [--svg FILE]      a complete rollout on this machine: deploy version 1 under load, roll to version 2, destroy; --svg draws it
  test [--nightly] [--allow-missing] [--no-setup] [--no-run] [--core NAME]… [-- TEST ARGUMENTS]
                         everything that CI checks; installs openssh-server, iproute2, systemd and python3-grpcio, and unpacks
                         Prometheus, through apt-get when they are missing and it may; what a test needs and is missing is a
                         failure, or with --allow-missing an entry of a list at the end; --nightly runs the long tests in full,
                         and all Terraform cores of tests/cores.txt; --core runs the promises on one of them (1.6, tofu, all, or a
                         program's path) and nothing else;
                         TEST ARGUMENTS are libtest's, as after `cargo test --`
  bench [NAME…] [--quick] [--json]
                         benchmarks, with a release build; --quick is a smoke run with the debug build
  package [--program PATH] [--version VERSION] [--output FOLDER] [--quick]
                         the wrapper's Debian package, from a release build; --quick packs the debug build
  gen                    makes generated files again: the Rust code of proto/

Needs Rust, and terraform or tofu on PATH.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = match arguments.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("", [].as_slice()),
    };
    let outcome = match command {
        "demo" => demo::run(rest),
        "test" => test::run(rest),
        "bench" => bench::run(rest),
        "package" => package::run(rest),
        "gen" => generate::run(rest),
        "help" | "--help" | "-h" => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cargo xtask {command}: {error:#}");
            ExitCode::FAILURE
        }
    }
}
