//! The stand-in programs. Each has a file in `src/bin/`; the program `bench` contains all of them, because an optimized build of each takes a
//! minute: it is the one that its first argument, the name of its file, names.

pub mod carry;
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
        "terraform-provider-lab" => grit_provider::plugin::run(crate::lab_provider::registry()),
        _ => return None,
    })
}
