//! Programs that a test creates and then runs.
//!
//! A file that is open for writing cannot be executed, and a process that another test starts holds a copy of each descriptor of this process
//! between fork and exec. So a separate process writes the program, and exits before the program runs.

use std::{fs, io, path::Path, process::Command};

/// A copy of a program that every user can run.
///
/// # Errors
///
/// If the copy fails, with the stderr of `install`.
pub fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let output = Command::new("install").args(["-m", "755"]).args([from, to]).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()))
}

/// A shell script.
///
/// # Errors
///
/// If the file cannot be written.
pub fn script(path: &Path, text: &str) -> io::Result<()> {
    let draft = path.with_extension("draft");
    fs::write(&draft, format!("#!/bin/sh\n{text}\n"))?;
    copy(&draft, path)?;
    fs::remove_file(draft)
}
