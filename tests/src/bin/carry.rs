//! `carry`: see `grit_tests::programs::carry`.

use std::process::ExitCode;

fn main() -> ExitCode {
    grit_tests::programs::carry::main()
}
