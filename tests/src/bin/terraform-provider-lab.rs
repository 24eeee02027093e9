//! A provider whose resources inject faults on request: see `grit_tests::lab_provider`.

use std::process::ExitCode;

fn main() -> ExitCode {
    grit_plugin::run(grit_tests::lab_provider::registry())
}
