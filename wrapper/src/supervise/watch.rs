//! Detects the removal of a file or socket, so that it can be created again. Without changes it uses no CPU time.

use std::{
    ffi::OsString,
    io,
    mem::MaybeUninit,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
};

use rustix::{
    fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags},
    io::Errno,
};
use tokio::io::{Interest, unix::AsyncFd};
use tracing::debug;

use crate::supervise::{log_key as key, trusted_dir::TrustedDir};

/// Watches file names in one directory.
#[derive(Debug)]
pub struct Watch {
    events: AsyncFd<OwnedFd>,
    names: Vec<OsString>,
}

impl Watch {
    /// Watches these files; `replaced`: also that another file gets the name. `None` if the directory cannot be watched.
    pub(crate) fn new(folder: &TrustedDir, names: Vec<OsString>, replaced: bool) -> Option<Self> {
        Self::try_new(folder, names, replaced)
            .inspect_err(|error| {
                debug!(
                    { key::ERROR } = %error,
                    { key::PATH } = %folder.path().display(),
                    "cannot watch the directory"
                );
            })
            .ok()
    }

    #[expect(
        deprecated,
        reason = "its replacement is unsafe, because other code could close the descriptor; an OwnedFd has one owner"
    )]
    fn try_new(folder: &TrustedDir, names: Vec<OsString>, replaced: bool) -> io::Result<Self> {
        let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let path = format!("/proc/self/fd/{}", folder.descriptor().as_raw_fd());
        let mut what =
            WatchFlags::DELETE | WatchFlags::MOVED_FROM | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
        what.set(WatchFlags::MOVED_TO, replaced);
        inotify::add_watch(&events, path, what | WatchFlags::ONLYDIR)?;
        Ok(Self { events: AsyncFd::with_interest(events, Interest::READABLE)?, names })
    }

    /// Waits until one of the files or the directory was removed or renamed. Cancel safe.
    pub(crate) async fn removed(&self) {
        loop {
            let Ok(mut ready) = self.events.readable().await else { return std::future::pending().await };
            if self.has_news() {
                return;
            }
            ready.clear_ready();
        }
    }

    /// Reads the pending events.
    fn has_news(&self) -> bool {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.events, &mut buffer);
        let mut news = false;
        loop {
            match events.next() {
                Ok(event) => {
                    let of_folder = ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::QUEUE_OVERFLOW;
                    let is_ours = event.file_name().is_some_and(|found| {
                        self.names.iter().any(|name| name.as_bytes() == found.to_bytes())
                    });
                    news |= is_ours || event.events().intersects(of_folder);
                }
                Err(Errno::INTR) => {}
                Err(_) => return news,
            }
        }
    }
}
