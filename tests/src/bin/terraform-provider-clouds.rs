//! The schemas of the clouds' providers: see `grit_tests::lab_provider::clouds`.

use std::process::ExitCode;

fn main() -> ExitCode {
    grit_plugin::run(grit_tests::lab_provider::clouds::registry())
}
