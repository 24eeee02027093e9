//! The command line of the child, checked before it is started.

use std::{
    env,
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::fs::{Access, access};
use thiserror::Error;

use super::executable_format;
use crate::supervise::blocking;

/// Timeout of the search for the program.
const FIND_LIMIT: Duration = Duration::from_secs(5);

/// A program with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    /// The name as given, which becomes `argv[0]` of the child.
    pub name: OsString,
    pub args: Vec<OsString>,
    /// The variable PATH.
    path: Option<OsString>,
}

/// Why a command cannot be executed.
#[derive(Debug, Error)]
pub enum CommandError {
    #[error("no command: add it after `--`, for example `-- gitlab-runner run`")]
    Empty,
    #[error("the command {0:?} does not exist (a name without a slash is searched in PATH)")]
    Missing(OsString),
    #[error("the command {0:?} is not an executable file")]
    NotExecutable(PathBuf),
    #[error(
        "the command {program:?} is neither an executable for this CPU architecture nor a script with a `#!` line"
    )]
    Format {
        program: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot search for the command {name:?}")]
    Search {
        name: OsString,
        #[source]
        source: io::Error,
    },
}

impl CommandLine {
    /// `path` is the variable PATH.
    pub fn new(words: Vec<OsString>, path: Option<OsString>) -> Result<Self, CommandError> {
        let mut words = words.into_iter();
        let name = words.next().filter(|name| !name.is_empty()).ok_or(CommandError::Empty)?;
        Ok(Self { name, args: words.collect(), path })
    }

    /// The program, which exists and can be executed. It is searched in PATH, unless its name has a slash.
    /// Takes at most [`FIND_LIMIT`].
    pub async fn program(&self) -> Result<PathBuf, CommandError> {
        let (name, path) = (self.name.clone(), self.path.clone());
        let search =
            blocking::run("command", FIND_LIMIT, move || Ok(find_executable(&name, path.as_deref())));
        search.await.map_err(|source| CommandError::Search { name: self.name.clone(), source })?
    }

    /// The command as given.
    pub fn words(&self) -> Vec<String> {
        let words = std::iter::once(&self.name).chain(&self.args);
        words.map(|word| word.to_string_lossy().into_owned()).collect()
    }
}

fn find_executable(name: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, CommandError> {
    let program = find(name, path)?;
    match executable_format::check(&program) {
        Ok(()) => Ok(program),
        Err(source) => Err(CommandError::Format { program, source }),
    }
}

fn find(name: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, CommandError> {
    if name.as_bytes().contains(&b'/') {
        let program = PathBuf::from(name);
        return match program.metadata() {
            Err(_) => Err(CommandError::Missing(name.to_owned())),
            Ok(_) if is_executable(&program) => Ok(program),
            Ok(_) => Err(CommandError::NotExecutable(program)),
        };
    }
    env::split_paths(path.unwrap_or_default())
        .map(|folder| folder.join(name))
        .find(|program| is_executable(program))
        .ok_or_else(|| CommandError::Missing(name.to_owned()))
}

fn is_executable(program: &Path) -> bool {
    program.is_file() && access(program, Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_command_without_slash_is_searched_in_path() {
        let path = Some(OsStr::new("/nonexistent:/bin:/usr/bin"));
        assert!(find(OsStr::new("sh"), path).unwrap().ends_with("sh"));
        assert_eq!(find(OsStr::new("/bin/sh"), None).unwrap(), PathBuf::from("/bin/sh"));
        assert!(matches!(find(OsStr::new("no-such-command"), path), Err(CommandError::Missing(_))));
        assert!(matches!(find(OsStr::new("./no/such"), path), Err(CommandError::Missing(_))));
        assert!(matches!(find(OsStr::new("/etc/passwd"), path), Err(CommandError::NotExecutable(_))));
        assert!(matches!(find(OsStr::new("/etc"), path), Err(CommandError::NotExecutable(_))));
        assert!(matches!(CommandLine::new(vec![], None), Err(CommandError::Empty)));
    }
}
