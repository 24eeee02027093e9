//! `runner-stand-in`: see `grit_tests::programs::runner_stand_in`.

use std::process::ExitCode;

fn main() -> ExitCode {
    grit_tests::programs::runner_stand_in::main()
}
