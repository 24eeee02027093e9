//! Files of the user: `~` in paths, and errors of the file system in few words.

use std::{
    fs::File,
    io::{self, Read as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use crate::secret::Secret;

/// The largest file that is read. A known_hosts file of this size names a hundred thousand hosts.
const LARGEST: u64 = 16 << 20;

/// Replaces a leading `~` by the home folder. Without a home folder the path stays as it is.
pub fn expand(path: &Path, home: Option<&Path>) -> PathBuf {
    match (path.strip_prefix("~"), home) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => path.to_owned(),
    }
}

/// Whether a text was probably meant as the path of a file with the text.
pub fn looks_like_path(text: &str) -> bool {
    let text = text.trim();
    text.starts_with(['/', '~', '.']) && !text.contains('\n') && text.len() < 4096
}

/// A path for errors and logs. The text of a key that was set instead of a path is hidden.
pub fn shown(path: &Path) -> String {
    if is_no_path(path) { "(value hidden: not a path)".to_owned() } else { path.display().to_string() }
}

fn is_no_path(path: &Path) -> bool {
    let text = path.to_string_lossy();
    text.contains("-----") || text.contains(char::is_control) || text.len() > 4096
}

/// Reads a file of the user. Blocks only briefly: rejects directories, pipes, devices, and files larger than 16 MiB.
pub fn read(path: &Path) -> Result<Vec<u8>, String> {
    read_up_to(path, LARGEST)
}

/// As [`read`], with another limit: a multiple of 1 MiB.
pub fn read_up_to(path: &Path, largest: u64) -> Result<Vec<u8>, String> {
    if is_no_path(path) {
        return Err(
            "expected a file path; to pass the text of a key or certificate, use the attribute without `_path`".to_owned()
        );
    }
    let read = || -> io::Result<Result<Vec<u8>, String>> {
        // Opening a pipe would wait for a writer. The flag has no effect on a file.
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let mut file = File::options().read(true).custom_flags(flags).open(path)?;
        let kind = file.metadata()?.file_type();
        if kind.is_dir() {
            return Ok(Err("it is a directory".to_owned()));
        } else if !kind.is_file() {
            return Ok(Err("it is not a regular file".to_owned()));
        }
        let mut bytes = Vec::new();
        file.by_ref().take(largest + 1).read_to_end(&mut bytes)?;
        let is_too_large = bytes.len() as u64 > largest;
        Ok(if is_too_large { Err(format!("it is larger than {} MiB", largest >> 20)) } else { Ok(bytes) })
    };
    read().unwrap_or_else(|error| Err(plain(&error)))
}

/// As [`read`], a file of text that may be secret.
pub fn read_text(path: &Path) -> Result<Secret, String> {
    let bytes = zeroize::Zeroizing::new(read(path)?);
    str::from_utf8(&bytes).map(Secret::new).map_err(|_| {
        match bytes.get(..2) {
            Some([0xff, 0xfe] | [0xfe, 0xff]) => {
                "it is UTF-16, as Windows PowerShell writes with `>`; write the file in UTF-8 or ASCII"
            }
            _ => "it is not valid UTF-8",
        }
        .to_owned()
    })
}

/// The byte order mark of UTF-8, with which some editors on Windows begin a file.
pub(crate) const MARK: &str = "\u{feff}";

pub(crate) fn without_mark(text: &str) -> &str {
    text.strip_prefix(MARK).unwrap_or(text)
}

/// An I/O error without its number: `No such file or directory`.
pub fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split_once(" (os error").map_or(text.clone(), |(plain, _)| plain.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_text_in_place_of_path_is_hidden() {
        assert_eq!(shown(Path::new("/home/me/.ssh/id_ed25519")), "/home/me/.ssh/id_ed25519");
        for key in ["-----BEGIN OPENSSH PRIVATE KEY----- b3BlbnNz", "b3BlbnNz\nc2VjcmV0\n", &"A".repeat(5000)]
        {
            assert_eq!(shown(Path::new(key)), "(value hidden: not a path)");
            assert!(read(Path::new(key)).unwrap_err().contains("expected a file path"));
        }
    }

    #[test]
    fn text_in_utf16_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        for (bytes, problem) in
            [(b"\xff\xfek\0", "UTF-16"), (b"\xfe\xff\0k", "UTF-16"), (b"\xffkey", "not valid UTF-8")]
        {
            std::fs::write(&file, bytes).unwrap();
            let text = read_text(&file).unwrap_err();
            assert!(text.contains(problem), "{bytes:?}: {text}");
        }
    }

    #[test]
    fn only_regular_files_are_read_without_blocking() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let refused = |path: &Path| read(path).unwrap_err();
        std::fs::write(path("file"), "text").unwrap();
        assert_eq!(read(&path("file")), Ok(b"text".to_vec()));
        std::os::unix::fs::symlink(path("file"), path("link")).unwrap();
        assert_eq!(read(&path("link")), Ok(b"text".to_vec()));
        std::fs::write(path("empty"), "").unwrap();
        assert_eq!(read(&path("empty")), Ok(Vec::new()));

        assert_eq!(refused(dir.path()), "it is a directory");
        rustix::fs::mkfifoat(rustix::fs::CWD, path("pipe"), rustix::fs::Mode::RUSR).unwrap();
        assert_eq!(refused(&path("pipe")), "it is not a regular file");
        assert_eq!(refused(Path::new("/dev/zero")), "it is not a regular file");
        let _listener = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        assert!(refused(&path("socket")).contains("No such device"), "{}", refused(&path("socket")));
        assert_eq!(refused(&path("missing")), "No such file or directory");
        let large = File::create(path("large")).unwrap();
        large.set_len(LARGEST + 1).unwrap();
        assert_eq!(refused(&path("large")), "it is larger than 16 MiB");
    }
}
