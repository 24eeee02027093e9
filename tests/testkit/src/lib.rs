//! What the tests of all crates share.
//!
//! `cargo xtask test` sets the variables that are read here:
//!
//! - `GRIT_TEST_NIGHTLY=1` (`--nightly`): tests with many rounds run all of them. See [`rounds`].
//! - `GRIT_TEST_NOT_COVERED=FILE` (`--allow-missing`): a test that cannot run on this machine adds a line to the file, and passes. Without
//!   the variable such a test fails. See [`not_covered`].

#![expect(
    clippy::panic,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "helpers of tests: a test fails by panicking"
)]

pub mod architecture;
pub mod gallery;
pub mod generated;
pub mod page;
pub mod program;

use std::{env, ffi::OsStr, fs::OpenOptions, io::Write as _};

/// Set to `1`: run the long tests in full.
pub const NIGHTLY: &str = "GRIT_TEST_NIGHTLY";

/// The name of the Terraform core of this process, if it is not the one on PATH.
const CORE_NAME: &str = "GRIT_TEST_CORE_NAME";

/// The file that lists what was not tested.
pub const NOT_COVERED: &str = "GRIT_TEST_NOT_COVERED";

/// Whether this is a nightly run, in which tests take as long as they need.
#[must_use]
pub fn nightly() -> bool {
    is_set(env::var_os(NIGHTLY).as_deref())
}

/// How many rounds a test runs: `quick` on every run, `all` in a nightly run.
#[must_use]
pub fn rounds<T>(quick: T, all: T) -> T {
    if nightly() { all } else { quick }
}

/// Reports that this machine lacks what a test needs. The caller returns after it.
///
/// # Panics
///
/// When missing things are not allowed, which is the default: then the test has failed.
#[track_caller]
pub fn not_covered(what: &str, why: &str) {
    let what = format!("{what}, because {why}").replace('\n', " ");
    let Some(file) = env::var_os(NOT_COVERED).filter(|file| !file.is_empty()) else {
        panic!("not covered: {what} (`cargo xtask test --allow-missing` lists this instead of failing)");
    };
    let thread = std::thread::current();
    let on = env::var(CORE_NAME).map(|core| format!(" on {core}")).unwrap_or_default();
    let line = format!("{}{on}\t{what}\n", thread.name().unwrap_or("a test"));
    // One write of one line, so that lines of several processes do not mix.
    let report = OpenOptions::new().create(true).append(true).open(&file);
    report
        .and_then(|mut report| report.write_all(line.as_bytes()))
        .expect("the report of what is not covered");
    eprintln!("NOT COVERED: {what}");
}

fn is_set(value: Option<&OsStr>) -> bool {
    value.is_some_and(|value| !value.is_empty() && value != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variable_is_set_unless_empty_or_zero() {
        for (value, expected) in [(None, false), (Some(""), false), (Some("0"), false), (Some("1"), true)] {
            assert_eq!(is_set(value.map(OsStr::new)), expected, "{value:?}");
        }
    }
}
