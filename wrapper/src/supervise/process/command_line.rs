//! The command line of the child, checked before it is started.

use std::{
    env,
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use rustix::fs::{Access, access};
use thiserror::Error;

use super::executable_format;

/// The directories that are searched if PATH is not set.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

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
}

impl CommandLine {
    /// `path` is the variable PATH.
    pub fn new(words: Vec<OsString>, path: Option<OsString>) -> Result<Self, CommandError> {
        let mut words = words.into_iter();
        let name = words.next().filter(|name| !name.is_empty()).ok_or(CommandError::Empty)?;
        Ok(Self { name, args: words.collect(), path })
    }

    /// The program, which exists and can be executed. Unless its name has a slash, it is searched in PATH, as by `execvp`.
    pub fn program(&self) -> Result<PathBuf, CommandError> {
        let program = find(&self.name, self.path.as_deref())?;
        match executable_format::check(&program) {
            Ok(()) => Ok(program),
            Err(source) => Err(CommandError::Format { program, source }),
        }
    }

    /// The command as given.
    pub fn words(&self) -> Vec<String> {
        let words = std::iter::once(&self.name).chain(&self.args);
        words.map(|word| word.to_string_lossy().into_owned()).collect()
    }
}

fn find(name: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, CommandError> {
    let has_slash = name.as_bytes().contains(&b'/');
    let path = if has_slash { OsStr::new("") } else { path.unwrap_or(OsStr::new(DEFAULT_PATH)) };
    let mut not_executable = None;
    for folder in env::split_paths(path) {
        let program = folder.join(name);
        if is_executable(&program) {
            return Ok(program);
        }
        if program.exists() {
            not_executable.get_or_insert(program);
        }
    }
    Err(not_executable.map_or_else(|| CommandError::Missing(name.to_owned()), CommandError::NotExecutable))
}

fn is_executable(program: &Path) -> bool {
    program.is_file() && access(program, Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_without_execute_permission_in_path_is_not_executable() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("tool"), "").unwrap();
        let only = find(OsStr::new("tool"), Some(folder.path().as_os_str()));
        assert!(matches!(only, Err(CommandError::NotExecutable(_))));
        let path = env::join_paths([folder.path(), Path::new("/bin")]).unwrap();
        std::fs::write(folder.path().join("sh"), "").unwrap();
        assert_eq!(find(OsStr::new("sh"), Some(&path)).unwrap(), Path::new("/bin/sh"));
    }

    #[test]
    fn only_command_without_slash_is_searched_in_path() {
        let path = Some(OsStr::new("/nonexistent:/bin:/usr/bin"));
        assert!(find(OsStr::new("sh"), path).unwrap().ends_with("sh"));
        assert!(find(OsStr::new("sh"), None).is_ok());
        assert_eq!(find(OsStr::new("/bin/sh"), None).unwrap(), PathBuf::from("/bin/sh"));
        assert!(matches!(find(OsStr::new("no-such-command"), path), Err(CommandError::Missing(_))));
        assert!(matches!(find(OsStr::new("./no/such"), path), Err(CommandError::Missing(_))));
        assert!(matches!(find(OsStr::new("/etc/passwd"), path), Err(CommandError::NotExecutable(_))));
        assert!(matches!(find(OsStr::new("/etc"), path), Err(CommandError::NotExecutable(_))));
        assert!(matches!(CommandLine::new(vec![], None), Err(CommandError::Empty)));
    }
}
