//! The directory of the record and of the sockets: only root or the wrapper's user can write to it, or replace it.
//!
//! The wrapper acts on the record, and the record contains secrets. In such a directory no other user can place, replace or remove a file, so that
//! paths in it need no further checks. The directories above it are checked as OpenSSH does with `StrictModes`, and so are links in its path: who can
//! rename a directory can place another one at its path. The record itself may still come from elsewhere: its owner and mode are checked when it is opened.
//!
//! A volume of a container, such as an emptyDir of Kubernetes, is writable for all users. Only root can change that, and without root all processes of a
//! container run as one user: a wrapper of another user than root accepts such a volume above its directory.

use std::{
    fmt,
    fs::{self, File, Metadata, OpenOptions},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, CWD, OFlags, StatxAttributes, StatxFlags, statx},
    io::Errno,
    process::geteuid,
};

/// Mode bits that allow other users to write.
const OTHERS_WRITE: u32 = 0o022;

const STICKY: u32 = 0o1000;

/// Fails with a next step if other users can write to the directory of this file.
pub(crate) fn check(file: &Path) -> io::Result<()> {
    let path = match file.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
        None => return Err(io::ErrorKind::IsADirectory.into()),
    };
    // The path as it is written has the links, and the other one their targets.
    check_all(&std::path::absolute(path)?)?;
    check_all(&fs::canonicalize(path)?)
}

/// Checks a directory and those above it.
fn check_all(folder: &Path) -> io::Result<()> {
    let hint = "use a directory that only root and the wrapper's user can write to, for example below /run";
    let by_mode = format!("run chmod go-w, or {hint}");
    for path in folder.ancestors() {
        let found = fs::symlink_metadata(path)?;
        // In a directory with the sticky bit, other users cannot rename what is not theirs. Every link has all mode bits.
        let is_sticky = path != folder && found.mode() & STICKY != 0;
        let is_volume = path != folder && !geteuid().is_root() && is_mount_point(path);
        let relevant = if is_sticky || is_volume || found.is_symlink() { 0 } else { OTHERS_WRITE };
        refuse_others(path, &found, relevant, "replace its files", [hint, &by_mode])?;
    }
    Ok(())
}

/// Linux before 5.8 does not show it.
fn is_mount_point(path: &Path) -> bool {
    let shown = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::empty());
    shown.is_ok_and(|shown| shown.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
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
    refuse_others(path, &found, OTHERS_WRITE, "have changed it", ["remove it", by_mode])?;
    Ok(file)
}

/// Fails if a user other than root and the wrapper's user could do this. The next steps are those for the owner, and for the mode.
fn refuse_others(
    path: &Path,
    found: &Metadata,
    relevant: u32,
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
    if mode & relevant != 0 {
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

    /// The directories `top`, `top/middle` and `top/middle/last`, and the link `top/link` to `middle`; the modes are those of the first three.
    #[test]
    fn directories_above_the_last_one_are_checked() {
        let temporary = tempfile::tempdir().unwrap();
        let top = temporary.path().join("top");
        let (middle, last) = (top.join("middle"), top.join("middle/last"));
        fs::create_dir_all(&last).unwrap();
        symlink("middle", top.join("link")).unwrap();
        for (modes, refused) in [
            ([0o755, 0o755, 0o755], None),
            ([0o777, 0o755, 0o755], Some("top\" has mode 0777")),
            ([0o775, 0o755, 0o755], Some("top\" has mode 0775")),
            ([0o755, 0o757, 0o755], Some("middle\" has mode 0757")),
            ([0o755, 0o755, 0o1777], Some("last\" has mode 1777")),
            ([0o1777, 0o755, 0o755], None),
            ([0o1777, 0o1777, 0o700], None),
        ] {
            for (path, bits) in [&top, &middle, &last].into_iter().zip(modes) {
                mode(path, bits);
            }
            for folder in [&last, &top.join("link/last")] {
                let found = check(&folder.join("state"));
                match refused {
                    Some(part) => assert!(refusal(found).contains(part), "{folder:?} {modes:?}"),
                    None => found.unwrap_or_else(|error| panic!("{folder:?} {modes:?}: {error}")),
                }
            }
        }
        if geteuid().is_root() {
            rustix::fs::chownat(
                CWD,
                top.join("link"),
                Some(rustix::fs::Uid::from_raw(4242)),
                None,
                AtFlags::SYMLINK_NOFOLLOW,
            )
            .unwrap();
            check(&last.join("state")).unwrap();
            let why = refusal(check(&top.join("link/last/state")));
            assert!(why.contains("link\" is owned by user 4242"), "{why}");
            chown(&middle, Some(4242), None).unwrap();
            assert!(refusal(check(&last.join("state"))).contains("middle\" is owned by user 4242"));
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
            CWD,
            &file,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        assert!(refusal(read()).contains("not a regular file"));
    }
}
