//! The process data that every user of the machine can read, and the environment of a provider's children.

use std::{
    collections::BTreeSet,
    fs,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use grit_tests::{sshd::tree, terraform::Processes};
use rustix::process::Pid;

/// Reads the command lines of all processes, and the environments of the providers' children, until it is stopped.
pub(crate) struct Watch {
    seen: Arc<Mutex<Seen>>,
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The data that was read.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) providers: BTreeSet<u32>,
    pub(crate) children: BTreeSet<i32>,
    /// Command lines and environments that contain a secret.
    pub(crate) leaks: BTreeSet<String>,
}

impl Watch {
    pub(crate) fn start(providers: Processes, secrets: Vec<String>) -> Self {
        let (seen, end) = (Arc::new(Mutex::new(Seen::default())), Arc::new(AtomicBool::new(false)));
        let thread = std::thread::spawn({
            let (seen, end) = (Arc::clone(&seen), Arc::clone(&end));
            move || {
                while !end.load(Ordering::Relaxed) {
                    look(&providers, &secrets, &mut seen.lock().unwrap());
                    std::thread::sleep(Duration::from_millis(25));
                }
            }
        });
        Self { seen, end, thread: Some(thread) }
    }

    pub(crate) fn end(mut self) -> Seen {
        self.end.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
        std::mem::take(&mut *self.seen.lock().unwrap())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
    }
}

fn look(providers: &Processes, secrets: &[String], seen: &mut Seen) {
    let mut hold = |path: String| {
        // An exited process has no data.
        let text = String::from_utf8_lossy(&fs::read(&path).unwrap_or_default()).into_owned();
        if secrets.iter().any(|secret| text.contains(secret)) {
            seen.leaks.insert(format!("{path}: {text}"));
        }
    };
    for entry in fs::read_dir("/proc").unwrap().filter_map(Result::ok) {
        if entry.file_name().to_string_lossy().parse::<i32>().is_ok() {
            hold(format!("{}/cmdline", entry.path().display()));
        }
    }
    let command = |pid: i32| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    for provider in providers.ids().unwrap() {
        seen.providers.insert(provider);
        let own = command(provider.cast_signed());
        let root = Pid::from_raw(provider.cast_signed()).unwrap();
        for child in tree::with_descendants(root).into_iter().skip(1).map(|it| it.as_raw_nonzero().get()) {
            // Before exec a child is still the provider itself.
            if command(child) != own {
                hold(format!("/proc/{child}/environ"));
                seen.children.insert(child);
            }
        }
    }
}
