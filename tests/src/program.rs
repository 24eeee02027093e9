//! Programs that a test makes and then runs.
//!
//! A file that is open for writing cannot be executed, and a process that another test is starting holds a copy of each of our descriptors
//! from its fork to its exec. So a process of its own writes the program, and has ended before anybody runs it.

use std::{fs, io, path::Path, process::Command};

/// A copy of a program, for everybody to run.
///
/// # Errors
///
/// Those of the copy, with what `install` says on its standard error.
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
/// Those of writing it.
pub fn script(path: &Path, text: &str) -> io::Result<()> {
    let draft = path.with_extension("draft");
    fs::write(&draft, format!("#!/bin/sh\n{text}\n"))?;
    copy(&draft, path)?;
    fs::remove_file(draft)
}
