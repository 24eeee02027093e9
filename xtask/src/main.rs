//! The project's commands: `cargo xtask demo | test | bench | simulate | fuzz | dist | gen`.
//!
//! Small and mostly on std, so that a fresh clone compiles it quickly. The functions of a command are in the
//! crates; this program builds and starts them.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command for people")]

mod bench;
mod demo;
mod dist;
mod fuzz;
mod generate;
mod release;
mod setup;
mod simulate;
mod steps;
mod test;

use std::process::ExitCode;

const USAGE: &str = "\
Usage: cargo xtask COMMAND

  demo                   perform a complete rollout on this host: deploy version 1 under load, replace it with version 2, then destroy
  test [--nightly] [--allow-missing | --known-missing] [--no-setup] [--no-run] [--core NAME]… [-- TEST ARGUMENTS]
                         run everything that CI checks. Missing dependencies (openssh-server, iproute2, systemd, python3-grpcio,
                         Prometheus) are installed with apt-get, if run as root. A missing dependency of a test is a failure, or
                         with --allow-missing an entry of a list at the end. --known-missing is the same, and fails at the end for an
                         entry that tests/not-covered.txt does not have. --nightly runs the long tests in full, with all
                         Terraform cores of tests/cores.txt. --core runs only the end-to-end tests, on one core (1.6, tofu, all, or
                         the path of a binary). TEST ARGUMENTS are passed to libtest, as after `cargo test --`: a name runs only the
                         tests with it
  bench [NAME…] [--quick] [--json]
                         run benchmarks with a release build; --quick is a smoke test with the debug build
  simulate [--seeds N] [--from SEED] [--failures N] [--rates] [--seed SEED [--whole]] [--mutations [NAME]]
                         run N simulated rollouts (10,000), with faults, on all cores, until the first one (or N) that does not keep a
                         promise. --rates writes how often each transition, error and fault happened to tests/src/simulation/rates.txt. --seed
                         prints the shortest run of this seed that fails in the same way, and with --whole all of it.
                         The first seed is the time, unless --from is set. --mutations puts known defects back, one at a time, and
                         shows that the simulation, or a test, finds each; a NAME selects those with it in their names
  fuzz [--seconds N] [TARGET…]
                         run the libFuzzer targets of tests/fuzz/, each for N seconds (60)
  dist [--out DIR] [--mirror DIR] [--version VERSION] [--programs DIR] [--quick] [--no-setup] [--only KIND]…
                         build the files of a release for this platform in target/dist: the provider's archive, the wrapper's .tar.gz, .deb
                         and .rpm, SBOMs and checksums. If rpmbuild is missing, the Debian package rpm is installed with apt-get, if run as
                         root; with --no-setup, this is an error. --mirror adds the provider to a mirror, such as ~/.terraform.d/plugins.
                         --programs packages the programs in a directory instead of a release build, and --quick compresses less. --only
                         creates parts, without checksums: provider, tar, deb, rpm, sbom
  gen [--release]        regenerate generated files: the Rust code of proto/, the registry pages, and the tables of the modules; --release instead
                         writes absolute links into the registry pages, for the commit of a release

Requires Rust, and terraform or tofu in PATH.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = match arguments.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("", [].as_slice()),
    };
    let outcome = match command {
        "help" | "--help" | "-h" => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        "bench" if asks_for_help(rest) => bench::help(),
        "demo" | "test" | "simulate" | "fuzz" | "dist" | "gen" if asks_for_help(rest) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        "demo" => demo::run(rest),
        "test" => test::run(rest),
        "bench" => bench::run(rest),
        "simulate" => simulate::run(rest),
        "fuzz" => fuzz::run(rest),
        "dist" => dist::run(rest),
        "gen" => generate::run(rest),
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

/// Arguments after `--` are those of the tests.
fn asks_for_help(arguments: &[String]) -> bool {
    let mut arguments = arguments.iter().take_while(|argument| *argument != "--");
    arguments.any(|argument| argument == "--help" || argument == "-h")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_is_an_argument_before_two_dashes() {
        let asks =
            |line: &str| asks_for_help(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert!(asks("--help") && asks("wrapper -h"));
        assert!(!asks("") && !asks("wrapper") && !asks("--core 1.6 -- --help"));
    }
}
