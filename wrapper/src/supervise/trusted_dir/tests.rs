//! Owners, modes and kinds of files.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink},
};

use super::*;

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn refusal<T: fmt::Debug>(result: io::Result<T>) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
    error.to_string()
}

const STATE: &str = "state";

#[test]
fn directory_writable_by_others_is_rejected() {
    let temporary = tempfile::tempdir().unwrap();
    let file = temporary.path().join(STATE);
    for refused in [0o1777, 0o777, 0o770, 0o702] {
        mode(temporary.path(), refused);
        let why = refusal(TrustedDir::of(&file));
        assert!(why.contains(&format!("mode {refused:04o}")) && why.contains("chmod go-w"), "{why}");
        TrustedDir::shared(&file).unwrap();
    }
    mode(temporary.path(), 0o755);
    TrustedDir::of(&file).unwrap();
    if geteuid().is_root() {
        chown(temporary.path(), Some(4242), None).unwrap();
        let why = refusal(TrustedDir::of(&file));
        assert!(why.contains("owned by user 4242"), "{why}");
    }
}

#[test]
fn removed_directory_is_created_with_its_owner_and_mode() {
    let temporary = tempfile::tempdir().unwrap();
    let own = temporary.path().join("own");
    let file = own.join(STATE);
    fs::create_dir(&own).unwrap();
    mode(&own, 0o750);
    let group = if geteuid().is_root() { 4242 } else { fs::metadata(&own).unwrap().gid() };
    chown(&own, None, Some(group)).unwrap();
    let folder = TrustedDir::of(&file).unwrap();
    fs::remove_dir(&own).unwrap();
    let again = |folder: &TrustedDir| folder.again(&file, TrustedDir::of);
    let folder = again(&folder).unwrap();
    assert!(folder.is_in_place());
    let found = fs::metadata(&own).unwrap();
    assert_eq!((found.mode() & 0o7777, found.gid()), (0o750, group));

    // Directories above it are not the wrapper's.
    fs::remove_dir(&own).unwrap();
    mode(temporary.path(), 0o777);
    assert!(refusal(again(&folder)).contains("mode 0777"), "another user could replace the new directory");
    fs::remove_dir(temporary.path()).unwrap();
    assert_eq!(again(&folder).unwrap_err().kind(), io::ErrorKind::NotFound);
    assert!(!temporary.path().exists());
}

#[test]
fn file_writable_by_others_is_rejected() {
    let temporary = tempfile::tempdir().unwrap();
    let file = temporary.path().join(STATE);
    let folder = TrustedDir::of(&file).unwrap();
    let name = OsStr::new(STATE);
    assert_eq!(folder.read(name).unwrap(), None);
    fs::write(&file, "text").unwrap();
    for refused in [0o666, 0o620, 0o602] {
        mode(&file, refused);
        let why = refusal(folder.read(name));
        assert!(why.contains(&format!("mode {refused:04o}")), "{why}");
        refusal(folder.open_or_create(name));
    }
    mode(&file, 0o644);
    assert_eq!(folder.read(name).unwrap().unwrap(), b"text");
    folder.open_or_create(name).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600, "others could hold its lock");
    if geteuid().is_root() {
        chown(&file, Some(4242), None).unwrap();
        for why in [refusal(folder.read(name)), refusal(folder.open_or_create(name))] {
            assert!(why.contains("owned by user 4242"), "{why}");
        }
    }
}

#[test]
fn non_regular_file_is_rejected() {
    let temporary = tempfile::tempdir().unwrap();
    let file = temporary.path().join(STATE);
    let folder = TrustedDir::of(&file).unwrap();
    let name = OsStr::new(STATE);
    fs::write(temporary.path().join("precious"), "precious").unwrap();
    symlink("precious", &file).unwrap();
    for why in [refusal(folder.read(name)), refusal(folder.open_or_create(name))] {
        assert!(why.contains("symbolic link"), "{why}");
    }
    fs::remove_file(&file).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &file, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    for why in [refusal(folder.read(name)), refusal(folder.open_or_create(name))] {
        assert!(why.contains("not a regular file"), "{why}");
    }
}

#[test]
fn planted_temporary_file_is_not_written() {
    let temporary = tempfile::tempdir().unwrap();
    let path = |name: &str| temporary.path().join(name);
    let folder = TrustedDir::of(&path(STATE)).unwrap();
    fs::write(path("precious"), "precious").unwrap();
    let open_before = File::create(path("new")).unwrap();
    mode(&path("new"), 0o666);
    let replace = || folder.replace(OsStr::new(STATE), OsStr::new("new"), b"{}");
    let id = replace().unwrap();
    assert_eq!(open_before.metadata().unwrap().len(), 0, "its owner reads what we write");
    assert_eq!(fs::metadata(path(STATE)).unwrap().mode() & 0o777, 0o600);
    assert_eq!(folder.find(OsStr::new(STATE)).unwrap(), Some(id));
    symlink("precious", path("new")).unwrap();
    replace().unwrap();
    assert_eq!(fs::read_to_string(path("precious")).unwrap(), "precious");
    assert!(!fs::symlink_metadata(path(STATE)).unwrap().is_symlink());
}

#[test]
fn file_is_overwritten_within_its_space_only() {
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path().join(STATE);
    let folder = TrustedDir::of(&path).unwrap();
    let name = OsStr::new(STATE);
    let id = folder.replace(name, OsStr::new("new"), &[b'a'; 100]).unwrap();
    for length in [10, 5000, 200] {
        assert_eq!(folder.overwrite(name, &vec![b'b'; length]).unwrap(), id);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.len() >= 100 && text.trim_end() == "b".repeat(length), "{length}: {text}");
    }
    let before = fs::read(&path).unwrap();
    let refused = folder.overwrite(name, &vec![b'c'; 1_000_000]).unwrap_err();
    assert_eq!((refused.kind(), fs::read(&path).unwrap()), (io::ErrorKind::StorageFull, before));
}
