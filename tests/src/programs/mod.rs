//! The stand-in programs. Each has a file in `src/bin/`. The program `bench` contains all of them, because an optimized build of each would take a
//! minute: the name of its file decides which one it is.

pub mod carry;
pub mod kubectl;
pub mod lab_init;
pub mod runner_stand_in;

use std::{ffi::OsStr, path::Path, process::ExitCode};

/// Runs the stand-in with this process's file name; `None` if there is none.
#[must_use]
pub fn by_file_name() -> Option<ExitCode> {
    let path = std::env::args_os().next()?;
    Some(match Path::new(&path).file_name().and_then(OsStr::to_str)? {
        "carry" => carry::main(),
        "lab-init" => lab_init::main(),
        "runner-stand-in" => runner_stand_in::main(),
        "terraform-provider-lab" => grit_plugin::run(crate::lab_provider::registry()),
        _ => return None,
    })
}
