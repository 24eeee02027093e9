//! Upgrade in place: the wrapper executes its binary again, which an upgrade has replaced.
//!
//! The process keeps its PID, so that it stays the main process of its service and the parent of the runner, whose exit code it gets. The new
//! program continues from the state file, with the arguments and the environment of the old one, and with its listening sockets.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    env,
    ffi::{CString, NulError, OsString},
    fs, io,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::MetadataExt,
    },
    path::{Path, PathBuf},
    sync::Weak,
    time::Duration,
};

use nix::unistd::execve;
use thiserror::Error;
use tokio::{process::Command, time::timeout};

use crate::daemon::serve::listen::KeptSockets;

/// Timeout of the new binary's `--version`. It needs milliseconds.
const CHECK_LIMIT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Upgrade {
    program: PathBuf,
    /// Missing while the wrapper exits.
    sockets: Weak<KeptSockets>,
}

/// Why the new binary was not executed. The old one goes on.
#[derive(Debug, Error)]
#[error(
    "cannot execute {program:?} (check that this file is a complete binary for this host, and repeat the upgrade)"
)]
pub(crate) struct UpgradeError {
    program: PathBuf,
    #[source]
    source: io::Error,
}

impl Upgrade {
    /// Call it at the start: an upgrade can replace the binary at any time after it.
    pub(crate) fn new(sockets: Weak<KeptSockets>) -> io::Result<Self> {
        Ok(Self { program: own_path()?, sockets })
    }

    /// Runs the new binary with `--version`: if the file is damaged, only that process dies.
    pub(crate) async fn check(&self) -> Result<(), UpgradeError> {
        let mut command = Command::new(&self.program);
        let version = command.arg("--version").kill_on_drop(true).output();
        let ended =
            timeout(CHECK_LIMIT, version).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let checked = ended.and_then(|output| match output.status {
            status if status.success() => Ok(()),
            status => Err(io::Error::other(format!("`--version` failed: {status}"))),
        });
        checked.map_err(|source| self.error(source))
    }

    /// Returns only after an error; nothing has changed then.
    pub(crate) fn exec(&self) -> UpgradeError {
        let Some(sockets) = self.sockets.upgrade() else {
            return self.error(io::Error::other("the wrapper is exiting"));
        };
        let result = self.try_exec(&sockets);
        let restored = sockets.inherit(false);
        match result.and_then(|never| restored.map(|()| never)) {
            Ok(never) => match never {},
            Err(source) => self.error(source),
        }
    }

    fn try_exec(&self, sockets: &KeptSockets) -> io::Result<Infallible> {
        let program = CString::new(self.program.as_os_str().as_bytes())?;
        let arguments = c_strings(env::args_os())?;
        let mut variables: BTreeMap<OsString, OsString> = env::vars_os().collect();
        variables.extend(sockets.variables()?.map(|(name, value)| (name.into(), value.into())));
        let variables = c_strings(variables.into_iter().map(|(mut name, value)| {
            name.push("=");
            name.push(value);
            name
        }))?;
        sockets.inherit(true)?;
        // Not the standard library's `exec`, which changes the handling of SIGPIPE before.
        Ok(execve(&program, &arguments, &variables)?)
    }

    fn error(&self, source: io::Error) -> UpgradeError {
        UpgradeError { program: self.program.clone(), source }
    }
}

fn c_strings(words: impl Iterator<Item = OsString>) -> Result<Vec<CString>, NulError> {
    words.map(|word| CString::new(word.into_vec())).collect()
}

/// The path of this binary, with its symbolic links, which an upgrade may change.
fn own_path() -> io::Result<PathBuf> {
    let file = |path: &Path| fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
    let own = file(Path::new("/proc/self/exe"));
    let name = env::args_os().next().unwrap_or_default();
    let folders: Vec<PathBuf> = match name.as_bytes().contains(&b'/') {
        true => vec![env::current_dir().unwrap_or_default()],
        false => env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect(),
    };
    let mut named = folders.into_iter().map(|folder| folder.join(&name));
    match named.find(|path| own.is_some() && file(path) == own) {
        Some(path) => Ok(path),
        // The name is another one, or the file was just replaced.
        None => {
            let path = env::current_exe()?;
            let replaced = path.to_str().and_then(|path| path.strip_suffix(" (deleted)"));
            Ok(replaced.map_or_else(|| path.clone(), PathBuf::from))
        }
    }
}
