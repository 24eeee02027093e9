//! Detects the removal of the state file, so that it can be written again. Without changes it uses no CPU time.

use std::{
    ffi::{OsStr, OsString},
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

use crate::supervise::trusted_dir::TrustedDir;

/// Watches one file name in one directory.
#[derive(Debug)]
pub struct Watch {
    events: AsyncFd<OwnedFd>,
    name: OsString,
}

impl Watch {
    #[expect(
        deprecated,
        reason = "its replacement is unsafe, because other code could close the descriptor; an OwnedFd has one owner"
    )]
    pub(super) fn new(folder: &TrustedDir, name: &OsStr) -> io::Result<Self> {
        let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let path = format!("/proc/self/fd/{}", folder.descriptor().as_raw_fd());
        let what =
            WatchFlags::DELETE | WatchFlags::MOVED_FROM | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
        inotify::add_watch(&events, path, what | WatchFlags::ONLYDIR)?;
        Ok(Self { events: AsyncFd::with_interest(events, Interest::READABLE)?, name: name.to_owned() })
    }

    /// Waits until the file or its directory was removed or renamed. Cancel safe.
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
                    let is_ours =
                        event.file_name().is_some_and(|name| name.to_bytes() == self.name.as_bytes());
                    news |= is_ours || event.events().intersects(of_folder);
                }
                Err(Errno::INTR) => {}
                Err(_) => return news,
            }
        }
    }
}
