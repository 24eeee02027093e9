//! `kubectl`: see `grit_tests::programs::kubectl`.

use std::process::ExitCode;

fn main() -> ExitCode {
    grit_tests::programs::kubectl::main()
}
