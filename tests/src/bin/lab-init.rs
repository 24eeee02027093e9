//! `lab-init`: see `grit_tests::programs::lab_init`.

use std::process::ExitCode;

fn main() -> ExitCode {
    grit_tests::programs::lab_init::main()
}
