//! The directory of the record and of the sockets: only root or the wrapper's user can write to it.
//!
//! The wrapper acts on the record, and the record contains secrets. In such a directory no other user can place, replace or remove a file, so that
//! paths in it need no further checks. The record itself may still come from elsewhere: its owner and mode are checked when it is opened.

use std::{
    fmt,
    fs::{self, File, Metadata, OpenOptions},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
};

use rustix::{fs::OFlags, io::Errno, process::geteuid};

/// Mode bits that allow other users to write.
const OTHERS_WRITE: u32 = 0o022;

/// Fails with a next step if other users can write to the directory of this file.
pub(crate) fn check(file: &Path) -> io::Result<()> {
    let path = match file.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
        None => return Err(io::ErrorKind::IsADirectory.into()),
    };
    let found = fs::metadata(path)?;
    let hint = "use a directory that only root and the wrapper's user can write to, for example below /run";
    if !is_trusted(&found) {
        let uid = found.uid();
        return Err(denied(
            path,
            format_args!("is owned by user {uid}, who could replace its files: {hint}"),
        ));
    }
    let mode = found.mode() & 0o7777;
    if mode & OTHERS_WRITE != 0 {
        return Err(denied(
            path,
            format_args!(
                "has mode {mode:04o}, so other users could replace its files: run chmod go-w, or {hint}"
            ),
        ));
    }
    Ok(())
}

/// Opens a file, without following links, that no other user can have written.
/// Fails with a next step if another user can.
pub(super) fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    // Without NONBLOCK, opening a FIFO would wait for another process.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = options.mode(0o600).custom_flags(flags.bits().cast_signed()).open(path);
    let file = opened.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::LOOP) => denied(path, "is a symbolic link, which is not allowed: remove it"),
        Some(Errno::ACCESS | Errno::PERM) => denied(
            path,
            "cannot be opened: make sure that no wrapper of another user uses it, then remove it",
        ),
        _ => error,
    })?;
    let found = file.metadata()?;
    let (uid, mode) = (found.uid(), found.mode() & 0o7777);
    if !found.is_file() {
        return Err(denied(path, "is not a regular file: remove it"));
    }
    if !is_trusted(&found) {
        return Err(denied(
            path,
            format_args!("is owned by user {uid}, who could have changed it: remove it"),
        ));
    }
    if mode & OTHERS_WRITE != 0 {
        return Err(denied(
            path,
            format_args!(
                "has mode {mode:04o}, so other users could have changed it: check its content, then run chmod 0600 \
                 or remove it"
            ),
        ));
    }
    Ok(file)
}

fn is_trusted(found: &Metadata) -> bool {
    found.uid() == 0 || found.uid() == geteuid().as_raw()
}

fn denied(path: &Path, why: impl fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, format!("{path:?} {why}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn refusal<T: fmt::Debug>(result: io::Result<T>) -> String {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
        error.to_string()
    }

    #[test]
    fn directory_writable_by_others_is_rejected() {
        let temporary = tempfile::tempdir().unwrap();
        let file = temporary.path().join("state");
        for refused in [0o1777, 0o777, 0o770, 0o702] {
            mode(temporary.path(), refused);
            let why = refusal(check(&file));
            assert!(why.contains(&format!("mode {refused:04o}")) && why.contains("chmod go-w"), "{why}");
        }
        mode(temporary.path(), 0o755);
        check(&file).unwrap();
        if geteuid().is_root() {
            chown(temporary.path(), Some(4242), None).unwrap();
            let why = refusal(check(&file));
            assert!(why.contains("owned by user 4242"), "{why}");
        }
    }

    #[test]
    fn file_that_others_could_have_written_is_rejected() {
        let temporary = tempfile::tempdir().unwrap();
        let file = temporary.path().join("state");
        let read = || open(&file, OpenOptions::new().read(true));
        assert_eq!(read().unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::write(&file, "text").unwrap();
        for refused in [0o666, 0o620, 0o602] {
            mode(&file, refused);
            let why = refusal(read());
            assert!(why.contains(&format!("mode {refused:04o}")), "{why}");
        }
        mode(&file, 0o644);
        read().unwrap();
        if geteuid().is_root() {
            chown(&file, Some(4242), None).unwrap();
            assert!(refusal(read()).contains("owned by user 4242"));
        }
        fs::remove_file(&file).unwrap();
        symlink("other", &file).unwrap();
        assert!(refusal(read()).contains("symbolic link"));
        fs::remove_file(&file).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &file,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        assert!(refusal(read()).contains("not a regular file"));
    }
}
