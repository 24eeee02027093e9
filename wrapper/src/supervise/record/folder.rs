//! The directory of the record and of the sockets: only root or the wrapper's user can write to it.
//!
//! The wrapper acts on the record, and the record contains secrets. In such a directory no other user can place, replace or remove a file, so that
//! paths in it need no further checks. The record itself may still come from elsewhere: its owner and mode are checked when it is opened.

use std::{
    fmt,
    fs::{self, File, Metadata, OpenOptions},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
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
    let hint = "use a directory that only root and the wrapper's user can write to, for example below /run";
    let by_mode = format!("run chmod go-w, or {hint}");
    refuse_others(path, &fs::metadata(path)?, "replace its files", [hint, &by_mode])
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
    if !found.is_file() {
        return Err(denied(path, "is not a regular file: remove it"));
    }
    let by_mode = "check its content, then run chmod 0600 or remove it";
    refuse_others(path, &found, "have changed it", ["remove it", by_mode])?;
    Ok(file)
}

/// Fails if a user other than root and the wrapper's user could do this. The next steps are those for the owner, and for the mode.
fn refuse_others(
    path: &Path,
    found: &Metadata,
    danger: &str,
    [by_owner, by_mode]: [&str; 2],
) -> io::Result<()> {
    let (uid, mode) = (found.uid(), found.mode() & 0o7777);
    if uid != 0 && uid != geteuid().as_raw() {
        return Err(denied(
            path,
            format_args!("is owned by user {uid}, and this user could {danger}: {by_owner}"),
        ));
    }
    if mode & OTHERS_WRITE != 0 {
        let why = format_args!("has mode {mode:04o}, so other users could {danger}: {by_mode}");
        return Err(denied(path, why));
    }
    Ok(())
}

/// The file beside this one, whose name has this at its end.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(suffix);
    PathBuf::from(path)
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
    fn directory_writable_by_other_users_is_rejected() {
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
    fn file_writable_by_other_users_is_rejected() {
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
