//! Files that only this user or root can have written: the state file and the lock files.
//!
//! The wrapper acts on their content, and the state file contains secrets. A file is opened without following links, and its owner and
//! mode are checked on the open descriptor. A new file is always created, never reused. In a directory that other users can write to this
//! would not help, because they could replace the file.

use std::{
    ffi::OsStr,
    fmt,
    fs::File,
    io::{self, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::FileExt,
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{
        AtFlags, FallocateFlags, FileType, Gid, Mode, OFlags, Stat, Uid, fallocate, fchmod, fchown, fstat,
        mkdir, open, openat, renameat, statat, unlinkat,
    },
    io::Errno,
    process::geteuid,
};
use tracing::debug;

use crate::supervise::log_key as key;

/// Mode bits that allow other users to write.
const OTHERS_WRITE: u32 = 0o022;

/// The space after the text of a file that is reserved for a longer text.
const RESERVE: u64 = 16 * 1024;

/// An open directory: its files are found even if its path was changed.
#[derive(Debug)]
pub(crate) struct TrustedDir {
    descriptor: OwnedFd,
    path: PathBuf,
}

/// Identifies a file while it exists: device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId(u64, u64);

impl TrustedDir {
    /// Opens the directory of a file.
    /// Fails with a next step if other users can write to it.
    pub(crate) fn of(file: &Path) -> io::Result<Self> {
        let folder = Self::shared(file)?;
        check_folder(&folder.path, &fstat(&folder.descriptor)?)?;
        Ok(folder)
    }

    /// Opens the directory of a file, even if other users can write to it. They can remove files, but cannot create a file that the
    /// wrapper accepts.
    pub(crate) fn shared(file: &Path) -> io::Result<Self> {
        let path = match file.parent() {
            Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
            Some(folder) => folder,
            None => return Err(io::ErrorKind::IsADirectory.into()),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor = open(path, flags, Mode::empty())?;
        Ok(Self { descriptor, path: path.to_owned() })
    }

    /// Opens the directory that its path leads to now. Creates it, but none above it, if it was removed: with the owner and the mode of the
    /// removed one, because clients look for sockets there.
    /// `open`: [`TrustedDir::of`] or [`TrustedDir::shared`].
    pub(crate) fn again(&self, file: &Path, open: fn(&Path) -> io::Result<Self>) -> io::Result<Self> {
        match open(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => return result,
        }
        let removed = fstat(&self.descriptor)?;
        // Users who can write to the directory above could put another directory there, whose owner and mode would be changed.
        Self::of(&self.path)?;
        // Other users cannot use it before it has its owner.
        match mkdir(&self.path, Mode::RWXU) {
            Err(Errno::EXIST) => return open(file),
            result => result?,
        }
        let folder = open(file)?;
        let (owner, group) = (Uid::from_raw(removed.st_uid), Gid::from_raw(removed.st_gid));
        if let Err(errno) = fchown(&folder.descriptor, Some(owner), Some(group)) {
            debug!({ key::ERROR } = %errno, "cannot set the owner of the new directory");
        }
        fchmod(&folder.descriptor, Mode::from_raw_mode(removed.st_mode & !OTHERS_WRITE))?;
        Ok(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// The content of a file; `None` if it does not exist.
    /// Fails with a next step if other users could have written the file.
    pub(crate) fn read(&self, name: &OsStr) -> io::Result<Option<Vec<u8>>> {
        let (mut file, _) = match self.open(name, OFlags::RDONLY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        Ok(Some(text))
    }

    /// Replaces or creates a file atomically, with a reserve for [`TrustedDir::overwrite`]. `fresh` is its name until it is complete.
    /// After an error, the file is unchanged.
    pub(crate) fn replace(&self, name: &OsStr, fresh: &OsStr, text: &[u8]) -> io::Result<FileId> {
        let create = || {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            openat(&self.descriptor, fresh, flags, Mode::RUSR | Mode::WUSR)
        };
        let descriptor = match create() {
            // Left by a wrapper that was killed while writing.
            Err(Errno::EXIST) => {
                unlinkat(&self.descriptor, fresh, AtFlags::empty())?;
                create()?
            }
            result => result?,
        };
        let mut file = File::from(descriptor);
        let mut write = || -> io::Result<FileId> {
            file.write_all(text)?;
            let space = text.len() as u64 + RESERVE;
            if let Err(errno) = fallocate(&file, FallocateFlags::KEEP_SIZE, 0, space) {
                debug!({ key::ERROR } = %errno, "cannot reserve space for later writes of the state file");
            }
            let id = FileId::new(&fstat(&file)?);
            renameat(&self.descriptor, fresh, &self.descriptor, name)?;
            Ok(id)
        };
        write().inspect_err(|_| {
            // On a full disk an incomplete file would occupy space.
            let _not_made = unlinkat(&self.descriptor, fresh, AtFlags::empty());
        })
    }

    /// Overwrites a file where it is, within the space that it has, so that this works on a full disk. Line feeds follow the text.
    /// If the space is too small, this is an error, and the file is unchanged.
    pub(crate) fn overwrite(&self, name: &OsStr, text: &[u8]) -> io::Result<FileId> {
        /// The unit of `st_blocks`.
        const BLOCK: u64 = 512;
        let (file, stat) = self.open(name, OFlags::WRONLY)?;
        let mut text = text.to_vec();
        // The length stays the same, or grows: a reader never finds the end of the earlier text.
        text.resize(text.len().max(usize::try_from(stat.st_size).unwrap_or_default()), b'\n');
        if text.len() as u64 > u64::try_from(stat.st_blocks).unwrap_or_default() * BLOCK {
            return Err(io::ErrorKind::StorageFull.into());
        }
        file.write_all_at(&text, 0)?;
        Ok(FileId::new(&stat))
    }

    /// Opens a file for reading and writing; creates it if necessary. Only its owner can open it. On a read-only file system, opens an
    /// existing file for reading: that is enough to lock it.
    pub(crate) fn open_or_create(&self, name: &OsStr) -> io::Result<File> {
        let (file, stat) = match self.open(name, OFlags::RDWR | OFlags::CREATE) {
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem && self.find(name)?.is_some() => {
                self.open(name, OFlags::RDONLY)?
            }
            opened => opened?,
        };
        if stat.st_uid == geteuid().as_raw() && stat.st_mode & 0o077 != 0 {
            fchmod(&file, Mode::RUSR | Mode::WUSR)?;
        }
        Ok(file)
    }

    /// The identity of the file with this name; `None` if it does not exist.
    pub(crate) fn find(&self, name: &OsStr) -> io::Result<Option<FileId>> {
        match statat(&self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(FileId::new(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Whether its path still leads to it.
    pub(crate) fn is_in_place(&self) -> bool {
        let here = fstat(&self.descriptor).map(|stat| FileId::new(&stat));
        let there = rustix::fs::stat(&self.path).map(|stat| FileId::new(&stat));
        matches!((here, there), (Ok(here), Ok(there)) if here == there)
    }

    /// Opens a file without following links, and checks that no other user could have written it.
    fn open(&self, name: &OsStr, how: OFlags) -> io::Result<(File, Stat)> {
        // Without NONBLOCK, opening a FIFO would wait for another process.
        let flags = how | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let descriptor = openat(&self.descriptor, name, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|errno| self.explain(name, errno))?;
        let stat = fstat(&descriptor)?;
        check_file(&self.path.join(name), &stat)?;
        Ok((File::from(descriptor), stat))
    }

    fn explain(&self, name: &OsStr, errno: Errno) -> io::Error {
        let path = self.path.join(name);
        match errno {
            Errno::LOOP => denied(&path, "is a symbolic link, which is not allowed: remove it"),
            Errno::ACCESS | Errno::PERM => {
                let of = self.owner(name).map_or_else(String::new, |uid| format!(" (owner: user {uid})"));
                denied(
                    &path,
                    format_args!(
                        "cannot be opened{of}: make sure that no wrapper of another user uses it, then \
                         remove it"
                    ),
                )
            }
            errno => errno.into(),
        }
    }

    fn owner(&self, name: &OsStr) -> Option<u32> {
        statat(&self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW).ok().map(|stat| stat.st_uid)
    }
}

impl FileId {
    #[expect(clippy::useless_conversion, reason = "the types differ between architectures")]
    pub(crate) fn new(stat: &Stat) -> Self {
        Self(stat.st_dev.into(), stat.st_ino.into())
    }
}

fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == geteuid().as_raw()
}

fn check_folder(path: &Path, stat: &Stat) -> io::Result<()> {
    let mode = stat.st_mode & 0o7777;
    if !is_trusted(stat.st_uid) {
        let uid = stat.st_uid;
        return Err(denied(
            path,
            format_args!("is owned by user {uid}, who could replace its files: {OTHER_DIRECTORY_HINT}"),
        ));
    }
    if mode & OTHERS_WRITE != 0 {
        return Err(denied(
            path,
            format_args!(
                "has mode {mode:04o}, so other users could replace its files: run chmod go-w, or \
                 {OTHER_DIRECTORY_HINT}"
            ),
        ));
    }
    Ok(())
}

const OTHER_DIRECTORY_HINT: &str =
    "use a directory that only root and the wrapper's user can write to, for example below /run";

fn check_file(path: &Path, stat: &Stat) -> io::Result<()> {
    let (uid, mode) = (stat.st_uid, stat.st_mode & 0o7777);
    if !FileType::from_raw_mode(stat.st_mode).is_file() {
        return Err(denied(path, "is not a regular file: remove it"));
    }
    if !is_trusted(uid) {
        return Err(denied(
            path,
            format_args!("is owned by user {uid}, who could have changed it: remove it"),
        ));
    }
    if mode & OTHERS_WRITE != 0 {
        return Err(denied(
            path,
            format_args!(
                "has mode {mode:04o}, so other users could have changed it: check its content, then run \
                 chmod 0600 or remove it"
            ),
        ));
    }
    Ok(())
}

fn denied(path: &Path, why: impl fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, format!("{path:?} {why}"))
}

#[cfg(test)]
mod tests;
