//! The last exit of the unit's main process, which systemd tells the command of `ExecStopPost=`: an exit that no wrapper has seen is not shown any more
//! after the next start.

use std::{fs, io, path::Path};

use serde::{Deserialize, Serialize};

use crate::supervise::process::Exit;

#[derive(Serialize, Deserialize)]
struct ExitRecord {
    invocation: String,
    exit: Exit,
}

/// Writes the exit to this file. `code` and `status` are the values of EXIT_CODE and EXIT_STATUS: systemd.exec(5).
///
/// # Errors
///
/// If the values are not those of an exit, or if the file cannot be written.
pub fn record_exit(path: &Path, invocation: &str, code: &str, status: &str) -> io::Result<()> {
    let exit = match (code, status.parse()) {
        ("exited", Ok(status)) => Some(Exit::Code(status)),
        ("killed" | "dumped", _) => signal(status).map(Exit::Signal),
        _ => None,
    };
    let exit =
        exit.ok_or_else(|| io::Error::other(format!("EXIT_CODE={code} EXIT_STATUS={status} is no exit")))?;
    let record = ExitRecord { invocation: invocation.to_owned(), exit };
    let fresh = path.with_extension("exit.new");
    fs::write(&fresh, serde_json::to_vec(&record)?)?;
    fs::rename(fresh, path)
}

/// The exit of this invocation, if it is the last one. `text` is the content of the file.
pub(super) fn parse(text: &[u8], invocation: &str) -> Option<Exit> {
    let record: ExitRecord = serde_json::from_slice(text).ok()?;
    (record.invocation == invocation).then_some(record.exit)
}

/// The number of a signal, from its name without `SIG`.
fn signal(name: &str) -> Option<i32> {
    let found = format!("SIG{name}").parse::<nix::sys::signal::Signal>().ok();
    found.map(|signal| signal as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_of_another_invocation_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.service.exit");
        let read = |path: &Path, invocation: &str| parse(&fs::read(path).ok()?, invocation);
        assert_eq!(read(&path, "a1"), None);
        for (code, status, exit) in [
            ("exited", "0", Exit::Code(0)),
            ("exited", "137", Exit::Code(137)),
            ("killed", "KILL", Exit::Signal(9)),
            ("dumped", "QUIT", Exit::Signal(3)),
        ] {
            record_exit(&path, "a1", code, status).unwrap();
            assert_eq!((read(&path, "a1"), read(&path, "b2")), (Some(exit), None));
        }
        record_exit(&path, "a1", "", "").unwrap_err();
        assert_eq!(read(&path, "a1"), Some(Exit::Signal(3)), "the last one stays");
    }
}
