//! Reads the runner's configuration file in a separate thread.
//!
//! The wrapper runs in one thread, and opening or reading a file can block indefinitely: a FIFO without a writer, or a network file system
//! whose server is down. A separate thread reads and parses the file. A caller waits at most [`READ_LIMIT`], and while one thread is blocked no
//! second one is started.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use rustix::fs::{Mode, OFlags};
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

use super::{
    runner_config::{ConfigError, RunnerConfig, parse},
    runner_source::{Endpoint, Source},
};
use crate::supervise::process;

/// A local file of this size is read in milliseconds.
pub(super) const READ_LIMIT: Duration = Duration::from_secs(1);

/// Larger than a configuration with thousands of sections.
const MAX_SIZE: u64 = 8 * 1024 * 1024;

/// GitLab accepts no longer one. The runner's has 14 characters.
const MAX_SYSTEM_ID: usize = 64;

type Answer = Result<Arc<RunnerConfig>, ConfigError>;

/// Reads one file. Clones share the thread.
#[derive(Clone, Debug)]
pub(super) struct Reader(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    source: Source,
    read: fn(&Path) -> Result<RunnerConfig, ConfigError>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The last thread, until its result was received.
    thread: Option<Thread>,
    /// The result of the last successful read.
    last: Option<Arc<RunnerConfig>>,
    /// The user of the last runner whose user was readable.
    runner: Option<u32>,
}

#[derive(Clone, Debug)]
struct Thread {
    started: Instant,
    answer: watch::Receiver<Option<Answer>>,
}

impl Reader {
    pub(super) fn new(source: Source) -> Self {
        Self::with(source, read)
    }

    fn with(source: Source, read: fn(&Path) -> Result<RunnerConfig, ConfigError>) -> Self {
        Self(Arc::new(Shared { source, read, state: Mutex::default() }))
    }

    /// Notes the user of the running process: the default configuration depends on it.
    pub(super) fn note_user(&self, pid: u32) {
        if let Some(user) = process::user(pid) {
            self.lock().runner = Some(user);
        }
    }

    /// The current content of the file.
    /// Fails also if reading takes longer than [`READ_LIMIT`].
    pub(super) async fn read(&self) -> Answer {
        if self.0.source.is_single {
            return Err(ConfigError::RunSingle);
        }
        let path = self.0.source.config_of(self.lock().runner)?;
        let mut thread = self.thread(path)?;
        let until = thread.started + READ_LIMIT;
        let path = || path.to_owned();
        let answer = match timeout_at(until, thread.answer.wait_for(Option::is_some)).await {
            Ok(Ok(answer)) => answer.clone(),
            Ok(Err(_)) => None,
            Err(_) => return Err(ConfigError::TooSlow { path: path(), limit: READ_LIMIT }),
        };
        let answer = answer.unwrap_or_else(|| {
            Err(ConfigError::Unreadable { path: path(), why: "the reader thread failed".to_owned() })
        });
        let mut state = self.lock();
        state.thread = None;
        if let Ok(config) = &answer {
            state.last = Some(Arc::clone(config));
        }
        answer
    }

    /// Address of the runner's HTTP server. If the configuration cannot be read now, the last successful read is used.
    pub(super) fn endpoint(&self, config: Option<&RunnerConfig>) -> Option<Endpoint> {
        let state = self.lock();
        let last = state.last.clone().filter(|_| self.0.source.config_of(state.runner).is_ok());
        drop(state);
        self.0.source.endpoint(config.or(last.as_deref()))
    }

    /// The reader thread, started if necessary.
    fn thread(&self, path: &Path) -> Result<Thread, ConfigError> {
        let mut state = self.lock();
        if let Some(thread) = &state.thread {
            return Ok(thread.clone());
        }
        let (sender, answer) = watch::channel(None);
        let (file, read) = (path.to_owned(), self.0.read);
        let started = thread::Builder::new().name("runner-config".to_owned()).spawn(move || {
            sender.send_replace(Some(read(&file).map(Arc::new)));
        });
        if let Err(error) = started {
            let why = format!("cannot start the reader thread: {error}");
            return Err(ConfigError::Unreadable { path: path.to_owned(), why });
        }
        let thread = Thread { started: Instant::now(), answer };
        state.thread = Some(thread.clone());
        Ok(thread)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
    use std::{
        path::PathBuf,
        sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    };

    use super::*;

    fn source(config: &Path) -> Source {
        Source { config: config.to_owned(), is_default: false, listen_address: None, is_single: false }
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

    /// A file system that first blocks and then responds.
    #[tokio::test]
    async fn hanging_file_system_blocks_only_one_thread() {
        static READS: AtomicUsize = AtomicUsize::new(0);
        static HANGS: AtomicBool = AtomicBool::new(true);
        fn hang(_: &Path) -> Result<RunnerConfig, ConfigError> {
            READS.fetch_add(1, Ordering::SeqCst);
            while HANGS.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(5));
            }
            Ok(RunnerConfig::default())
        }
        let path = Path::new("/nfs/config.toml");
        let reader = Reader::with(source(path), hang);
        let slow = || Err(ConfigError::TooSlow { path: path.to_owned(), limit: READ_LIMIT });
        assert_eq!(tokio::join!(reader.read(), reader.read()), (slow(), slow()));
        let again = Instant::now();
        for _ in 0..100 {
            assert_eq!(reader.read().await, slow());
        }
        assert!(again.elapsed() < READ_LIMIT / 2, "each question waited anew");
        assert_eq!(READS.load(Ordering::SeqCst), 1);
        HANGS.store(false, Ordering::SeqCst);
        while reader.read().await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(reader.read().await.is_ok());
        assert_eq!(READS.load(Ordering::SeqCst), 2);
    }
}
