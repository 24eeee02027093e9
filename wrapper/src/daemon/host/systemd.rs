//! Notifications for systemd: `Type=notify`, a status line, and the watchdog.
//!
//! READY is sent once, when the wrapper serves its clients. Without `NOTIFY_SOCKET` in the environment nothing is sent.

use std::{
    env,
    ffi::OsStr,
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    time::Duration,
};

use grit_proto::wrapper_v1::Status;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tracing::warn;

use crate::daemon::{control::Control, status};
use crate::supervise::Handle;

/// The variables of systemd for the wrapper itself: no child inherits them.
pub(in crate::daemon) const OF_WRAPPER: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];

/// Delay before a failed message is sent again: the queue of the service manager may be full for a moment.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The connection to the service manager.
#[derive(Debug)]
pub struct Notifier {
    socket: UnixDatagram,
    manager: SocketAddr,
    /// The maximum interval between two `WATCHDOG=1` messages.
    watchdog: Option<Duration>,
}

impl Notifier {
    /// The service manager of this process; `None` if the environment names none.
    /// Fails if the address in the environment is invalid.
    pub fn from_env() -> io::Result<Option<Self>> {
        let Some(address) = env::var_os("NOTIFY_SOCKET").filter(|address| !address.is_empty()) else {
            return Ok(None);
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Some(Self { socket, manager: manager(&address)?, watchdog: watchdog() }))
    }

    /// Notifies systemd until the end of the supervisor.
    pub async fn run(self, control: Control, supervisor: Handle) {
        // A third of the maximum interval: a start on a slow host may delay a response by more than half a minute. Without a watchdog the
        // interval has no effect.
        let mut alive = interval(self.watchdog.map_or(Duration::from_secs(3600), |limit| limit / 3));
        alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut changes = control.changes();
        let mut sent = Sent::default();
        let mut is_failing = false;
        loop {
            let (message, next) = sent.changes(&changes.status());
            let is_sent = message.is_empty() || self.send(&message, &mut is_failing);
            if is_sent {
                sent = next;
            }
            tokio::select! {
                changed = changes.next() => if changed.is_none() { return },
                () = sleep(RETRY_DELAY), if !is_sent => {}
                _ = alive.tick() => if self.watchdog.is_some() {
                    // A response of the supervisor shows that the thread that all parts share works. After the supervisor's end the other
                    // branch sends its last state.
                    if supervisor.ping().await.is_ok() {
                        self.send("WATCHDOG=1\n", &mut is_failing);
                    }
                },
            }
        }
    }

    /// Returns whether the message was sent. `is_failing`: the previous message was not sent.
    fn send(&self, message: &str, is_failing: &mut bool) -> bool {
        match self.socket.send_to_addr(message.as_bytes(), &self.manager) {
            Ok(_) => {
                *is_failing = false;
                true
            }
            Err(error) => {
                if !*is_failing {
                    warn!(%error, "cannot send sd_notify message; retrying every second");
                }
                *is_failing = true;
                false
            }
        }
    }
}

/// The values that were sent.
#[derive(Clone, Debug, Default)]
struct Sent {
    ready: bool,
    stopping: bool,
    status: String,
}

impl Sent {
    /// The message with the changed values, and the values after it was sent. The message is empty without a change.
    fn changes(&self, status: &Status) -> (String, Self) {
        let mut next = self.clone();
        let message = next.message(status);
        (message, next)
    }

    fn message(&mut self, status: &Status) -> String {
        let mut message = String::new();
        if !self.ready {
            self.ready = true;
            message += "READY=1\n";
        }
        if !self.stopping && status.shutting_down {
            self.stopping = true;
            message += "STOPPING=1\n";
        }
        let line = format!("The runner {}", status::line(status));
        if line != self.status {
            message += &format!("STATUS={line}\n");
            self.status = line;
        }
        message
    }
}

/// A path, or a name in the abstract namespace, which begins with `@`.
fn manager(address: &OsStr) -> io::Result<SocketAddr> {
    match address.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(address),
    }
}

fn watchdog() -> Option<Duration> {
    let number = |name| env::var(name).ok()?.parse::<u64>().ok();
    let for_us = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
    number("WATCHDOG_USEC").filter(|micros| for_us && *micros > 0).map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use grit_proto::wrapper_v1::State;
    use tokio::sync::watch;

    use super::*;
    use crate::supervise::{
        Policy, Supervision, Task,
        owner::Child,
        process::{CommandLine, Spawner},
    };
    use crate::{
        daemon::callback::AllowedUrls,
        runner::{self, Prober, Source},
    };

    #[test]
    fn ready_and_stopping_are_sent_once() {
        let mut sent = Sent::default();
        let mut status = status::status(None, &Supervision::default(), &runner::Health::default());
        status.set_state(State::Starting);
        assert_eq!(sent.message(&status), "READY=1\nSTATUS=The runner is starting\n");
        status.set_state(State::Running);
        assert_eq!(sent.message(&status), "STATUS=The runner is running, health level none\n");
        assert_eq!(sent.message(&status), "");
        status.set_state(State::Draining);
        status.shutting_down = true;
        assert_eq!(sent.message(&status), "STOPPING=1\nSTATUS=The runner is draining\n");
        assert_eq!(sent.message(&status), "");
    }

    #[tokio::test]
    async fn watchdog_is_sent_only_while_supervisor_responds() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = tokio::net::UnixDatagram::bind(&path).unwrap();
        let socket = UnixDatagram::unbound().unwrap();
        socket.set_nonblocking(true).unwrap();
        let watchdog = Some(Duration::from_millis(20));
        let notifier = Notifier { socket, manager: super::manager(path.as_os_str()).unwrap(), watchdog };
        let command = CommandLine::new(vec!["true".into()], Some("/usr/bin:/bin".into())).unwrap();
        let (task, supervisor) = Task::new(Policy::default(), Child::new(Spawner::new(command)), ());
        let source = Source::new(&[], |_| None);
        let settings = runner::Settings { source, interval: runner::Settings::INTERVAL };
        let (_publish, health) = watch::channel(runner::Health::default());
        let control = Control::new(supervisor.clone(), health, Prober::new(settings), AllowedUrls::default());
        let _notifier = tokio::spawn(notifier.run(control, supervisor));
        let mut message = [0; 4096];
        let mut feeds = async || {
            loop {
                let read = manager.recv(&mut message).await.unwrap();
                if &message[..read] == b"WATCHDOG=1\n" {
                    return;
                }
            }
        };
        let fed = tokio::time::timeout(Duration::from_millis(300), feeds()).await;
        assert!(fed.is_err(), "WATCHDOG=1 was sent while the supervisor hangs");
        let _supervision = tokio::spawn(task.run());
        tokio::time::timeout(Duration::from_secs(60), feeds()).await.unwrap();
    }

    #[test]
    fn notify_socket_may_be_a_path_or_abstract() {
        assert!(manager(OsStr::new("/run/systemd/notify")).unwrap().as_pathname().is_some());
        assert_eq!(manager(OsStr::new("@x")).unwrap().as_abstract_name(), Some(&b"x"[..]));
    }
}
