//! Reads the runner's configuration file.
//!
//! The wrapper runs in one thread, and opening or reading a file can block indefinitely: a FIFO without a writer, or a network file system
//! whose server is down. So another thread reads and parses the file, and a caller waits at most [`READ_LIMIT`].

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, Read},
    os::unix::ffi::OsStrExt,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use super::{
    runner_config::{ConfigError, RunnerConfig, parse},
    runner_source::{Endpoint, Source},
};
use crate::supervise::{blocking, process};
use rustix::fs::{Mode, OFlags};

/// A local file of this size is read in milliseconds.
pub(super) const READ_LIMIT: Duration = Duration::from_secs(1);

/// Larger than a configuration with thousands of sections.
const MAX_SIZE: u64 = 8 * 1024 * 1024;

/// GitLab accepts no longer one. The runner's has 14 characters.
const MAX_SYSTEM_ID: usize = 64;

type Answer = Result<Arc<RunnerConfig>, ConfigError>;

/// Reads one file. Clones share the last result.
#[derive(Clone, Debug)]
pub(super) struct Reader(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    source: Source,
    /// The result of the last successful read.
    last: Option<Arc<RunnerConfig>>,
    /// The user of the last runner whose user was readable.
    runner: Option<u32>,
}

impl Reader {
    pub(super) fn new(source: Source) -> Self {
        Self(Arc::new(Mutex::new(State { source, last: None, runner: None })))
    }

    /// Notes the user of the running process, on which the default configuration depends, and where it has its settings from. Takes at most a second.
    pub(super) async fn note_process(&self, pid: u32) {
        if let Some(user) = process::user(pid) {
            self.lock().runner = Some(user);
        }
        let of_process = self.lock().source.of_process;
        if of_process
            && let Ok(source) = blocking::run("runner-command", READ_LIMIT, move || source_of(pid)).await
        {
            self.lock().source = Source { of_process, ..source };
        }
    }

    /// The current content of the file.
    /// Fails also if reading takes longer than [`READ_LIMIT`].
    pub(super) async fn read(&self) -> Answer {
        let path = {
            let state = self.lock();
            if state.source.is_single {
                return Err(ConfigError::RunSingle);
            }
            state.source.config_of(state.runner)?.to_owned()
        };
        let file = path.clone();
        let read = blocking::run("runner-config", READ_LIMIT, move || Ok(read(&file))).await;
        let config = read.unwrap_or_else(|error| {
            Err(match error.kind() {
                io::ErrorKind::TimedOut => ConfigError::TooSlow { path, limit: READ_LIMIT },
                _ => ConfigError::Unreadable { path, why: error.to_string() },
            })
        });
        let config = Arc::new(config?);
        self.lock().last = Some(Arc::clone(&config));
        Ok(config)
    }

    /// Address of the runner's HTTP server. If the configuration cannot be read now, the last successful read is used.
    pub(super) fn endpoint(&self, config: Option<&RunnerConfig>) -> Option<Endpoint> {
        let state = self.lock();
        let last = state.last.clone().filter(|_| state.source.config_of(state.runner).is_ok());
        state.source.endpoint(config.or(last.as_deref()))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The settings of a process, from its command line and its environment. May block.
fn source_of(pid: u32) -> io::Result<Source> {
    let words = |file: &str| -> io::Result<Vec<OsString>> {
        let text = fs::read(format!("/proc/{pid}/{file}"))?;
        let words = text.split(|byte| *byte == 0).map(|word| OsStr::from_bytes(word).to_owned());
        Ok(words.collect())
    };
    let (command, variables) = (words("cmdline")?, words("environ")?);
    Ok(Source::new(&command, |name| {
        let value = |word: &OsString| {
            word.as_bytes()
                .strip_prefix(name.as_bytes())?
                .strip_prefix(b"=")
                .map(OsStr::from_bytes)
                .map(OsStr::to_owned)
        };
        variables.iter().find_map(value)
    }))
}

/// Reads and parses the file. May block.
fn read(path: &Path) -> Result<RunnerConfig, ConfigError> {
    let text = text(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => ConfigError::Missing(path.to_owned()),
        _ => ConfigError::Unreadable { path: path.to_owned(), why: error.to_string() },
    })?;
    let config = parse(&text).map_err(|why| ConfigError::Unreadable { path: path.to_owned(), why })?;
    Ok(RunnerConfig { system_id: system_id(path), ..config })
}

/// The system id of the runner manager, which the runner writes beside its configuration.
fn system_id(config: &Path) -> Option<String> {
    let id = text(&config.with_file_name(".runner_system_id")).ok()?;
    let is_valid = |id: &&str| {
        (1..=MAX_SYSTEM_ID).contains(&id.len())
            && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
    };
    Some(id.trim()).filter(is_valid).map(str::to_owned)
}

fn text(path: &Path) -> io::Result<String> {
    // Before opening it: opening a FIFO would unblock its writer, whose data is for the runner.
    check(&fs::metadata(path)?)?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    check(&file.metadata()?)?;
    let mut text = String::new();
    let read = file.take(MAX_SIZE + 1).read_to_string(&mut text)?;
    if read as u64 > MAX_SIZE {
        return Err(too_large());
    }
    Ok(text)
}

fn check(file: &fs::Metadata) -> io::Result<()> {
    if !file.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    if file.len() > MAX_SIZE { Err(too_large()) } else { Ok(()) }
}

fn too_large() -> io::Error {
    io::Error::other(format!("it is larger than {} MiB", MAX_SIZE / 1024 / 1024))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn source(config: &Path) -> Source {
        Source {
            config: config.to_owned(),
            is_default: false,
            listen_address: None,
            is_single: false,
            of_process: false,
        }
    }

    #[tokio::test]
    async fn config_file_is_read_on_every_probe() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        let reader = Reader::new(source(&path));
        assert_eq!(reader.read().await, Err(ConfigError::Missing(path.clone())));
        assert_eq!(reader.endpoint(None), None);
        fs::write(&path, "listen_address = \":1\"").unwrap();
        assert_eq!(reader.read().await.unwrap().listen_address.as_deref(), Some(":1"));
        assert_eq!(reader.read().await.unwrap().system_id, None);
        for (written, id) in [("r_0123456789ab\n", Some("r_0123456789ab")), ("", None), ("a b", None)] {
            fs::write(folder.path().join(".runner_system_id"), written).unwrap();
            assert_eq!(reader.read().await.unwrap().system_id.as_deref(), id);
        }
        fs::write(&path, "listen_address = ").unwrap();
        assert!(matches!(reader.read().await, Err(ConfigError::Unreadable { .. })));
        let endpoint = reader.endpoint(None).unwrap().to_string();
        assert_eq!(endpoint, "127.0.0.1:1 and [::1]:1", "the server is where it was");
    }

    #[tokio::test]
    async fn irregular_or_oversized_config_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
        for path in [path, folder.path().to_owned(), PathBuf::from("/dev/null")] {
            let error = Reader::new(source(&path)).read().await.unwrap_err().to_string();
            assert!(error.ends_with("it is not a regular file"), "{error}");
        }
        let large = folder.path().join("large");
        File::create(&large).unwrap().set_len(MAX_SIZE + 1).unwrap();
        let error = Reader::new(source(&large)).read().await.unwrap_err().to_string();
        assert!(error.ends_with("larger than 8 MiB"), "{error}");
    }
}
