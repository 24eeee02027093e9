//! Notifies systemd (`Type=notify`) of readiness and status, and feeds the watchdog.
//!
//! READY=1 is sent once, when the runner has reached the level of `--ready-when`, so that units ordered after this one start with a usable
//! runner. If the runner cannot reach this level, because it has no HTTP server, READY=1 is sent at its maximum level, with a warning in
//! the log. If the runner is draining or drained at the start, READY=1 is sent immediately: otherwise systemd would time out and restart
//! the wrapper, which would start a new runner. Without `NOTIFY_SOCKET` nothing is sent.

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

use grit_proto::wrapper_v1::{self as v1, State};
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval, sleep},
};
use tracing::warn;

use super::{
    grpc::WrapperV1,
    health::{Health, Level},
};
use crate::supervise::log_key as key;
use crate::{cli::view, supervise::Handle};

/// Delay before a failed message is sent again: systemd's queue may be full for a moment.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The connection to systemd.
#[derive(Debug)]
pub struct Notifier {
    socket: UnixDatagram,
    manager: SocketAddr,
    /// Watchdog timeout.
    watchdog: Option<Duration>,
}

impl Notifier {
    /// The notifier of this process; `None` without `NOTIFY_SOCKET`.
    ///
    /// # Errors
    ///
    /// If the address in the environment is invalid.
    pub fn from_env() -> io::Result<Option<Self>> {
        let Some(address) = env::var_os("NOTIFY_SOCKET").filter(|address| !address.is_empty()) else {
            return Ok(None);
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Some(Self { socket, manager: manager(&address)?, watchdog: watchdog() }))
    }

    /// Sends notifications until the supervisor exits; `ready` is the level at which READY=1 is sent.
    pub async fn run(
        self,
        service: WrapperV1,
        supervisor: Handle,
        mut health: watch::Receiver<Health>,
        ready: Level,
    ) {
        // Half of the watchdog timeout, as systemd recommends. Without a watchdog the interval does not matter.
        let mut watchdog_tick = interval(self.watchdog.map_or(Duration::from_secs(3600), |limit| limit / 2));
        watchdog_tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut supervision = supervisor.watch();
        let mut last = LastNotification::default();
        let mut is_failing = false;
        let mut warned = false;
        loop {
            // Marks the value before reading it, so that a change in between is not missed.
            supervision.mark_unchanged();
            let seen = health.borrow_and_update().of(&service.now().state);
            let is_ready = is_ready(&seen, ready);
            if is_ready && seen.level < ready && !std::mem::replace(&mut warned, true) {
                warn!(
                    { key::READY_WHEN } = ready.name(),
                    { key::LEVEL } = seen.level.name(),
                    { key::REASONS } = ?seen.reasons,
                    "READY=1 is sent below the level of --ready-when, because higher levels need the \
                     runner's HTTP server; set listen_address in the runner's configuration, or \
                     --runner-listen-address"
                );
            }
            let (message, next) = last.changes(&service.status(), is_ready);
            let mut is_sent = true;
            if !message.is_empty() {
                is_sent = self.send(&message, &mut is_failing);
            }
            if is_sent {
                last = next;
            }
            tokio::select! {
                changed = supervision.changed() => if changed.is_err() { return },
                Ok(()) = health.changed() => {}
                () = sleep(RETRY_DELAY), if !is_sent => {}
                _ = watchdog_tick.tick() => if self.watchdog.is_some() {
                    // A response shows that the supervisor works, and with it the thread of all tasks. After its exit the other branch
                    // reports its last state.
                    if supervisor.ping().await.is_ok() {
                        self.send("WATCHDOG=1\n", &mut is_failing);
                    }
                },
            }
        }
    }

    /// Whether the message was sent. `is_failing` is whether the previous one failed.
    fn send(&self, message: &str, is_failing: &mut bool) -> bool {
        match self.socket.send_to_addr(message.as_bytes(), &self.manager) {
            Ok(_) => {
                *is_failing = false;
                true
            }
            Err(error) => {
                if !*is_failing {
                    warn!({ key::ERROR } = %error, "cannot send sd_notify message; retrying every second");
                }
                *is_failing = true;
                false
            }
        }
    }
}

/// Whether the runner has reached the wanted level, or its maximum level.
fn is_ready(health: &Health, wanted: Level) -> bool {
    health.goal != Level::None && health.level >= wanted.min(health.goal)
}

/// The last sent values.
#[derive(Clone, Debug, Default)]
struct LastNotification {
    ready: bool,
    stopping: bool,
    status: String,
}

impl LastNotification {
    /// The changes as a message, and the values after it was sent. The message is empty without changes.
    fn changes(&self, status: &v1::Status, is_ready: bool) -> (String, Self) {
        let mut next = self.clone();
        let message = next.message(status, is_ready);
        (message, next)
    }

    fn message(&mut self, status: &v1::Status, is_ready: bool) -> String {
        let mut message = String::new();
        let is_up = is_ready && status.state() == State::Running;
        if !self.ready && (is_up || status.drain.is_some()) {
            self.ready = true;
            message += "READY=1\n";
        }
        if !self.stopping && status.leaving {
            self.stopping = true;
            message += "STOPPING=1\n";
        }
        let line = format!("The runner {}", view::line(status));
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

    use super::*;
    use crate::daemon::{
        grpc::Authorizer,
        health::{self, Prober, Source},
    };
    use crate::supervise::{
        Callbacks, Completion, Policy, Task,
        callback::Callback,
        process::{CommandLine, Linux},
    };

    #[test]
    fn ready_and_stopping_are_sent_once() {
        let mut last = LastNotification::default();
        let mut status = v1::Status { state: State::Starting.into(), ..v1::Status::default() };
        assert_eq!(last.message(&status, false), "STATUS=The runner is starting\n");
        status.state = State::Running.into();
        assert_eq!(last.message(&status, true), "READY=1\nSTATUS=The runner is running\n");
        assert_eq!(last.message(&status, true), "");
        status.state = State::Draining.into();
        status.leaving = true;
        assert_eq!(last.message(&status, false), "STOPPING=1\nSTATUS=The runner is draining\n");
        assert_eq!(last.message(&status, false), "");
    }

    #[test]
    fn draining_sends_ready_without_level() {
        let drain = Some(v1::Drain { id: "deploy-7".to_owned(), ..v1::Drain::default() });
        for state in [State::Draining, State::Forcing, State::Stopped] {
            let status = v1::Status { state: state.into(), drain: drain.clone(), ..v1::Status::default() };
            assert!(
                LastNotification::default().message(&status, false).starts_with("READY=1\n"),
                "{state:?}"
            );
        }
        // A runner that exited unexpectedly and is not restarted was never ready.
        let status = v1::Status { state: State::Stopped.into(), ..v1::Status::default() };
        assert!(!LastNotification::default().message(&status, false).contains("READY"));
    }

    struct NoCallbacks;

    impl Callbacks for NoCallbacks {
        fn send(&mut self, _: Callback, _: tokio::time::Instant, _: Completion) {}
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
        let command = CommandLine::new(vec!["true".into()], Some("/usr/bin:/bin".as_ref())).unwrap();
        let (task, supervisor) = Task::new(Policy::default(), Linux::new(command), NoCallbacks);
        let source = Source::new(&[], |_| None);
        let settings = health::Settings {
            source,
            min_uptime: health::Settings::MIN_UPTIME,
            min_sections: 1,
            interval: health::Settings::INTERVAL,
        };
        let guard = Authorizer::default();
        let (_publish, health) = watch::channel(Health::default());
        let service = WrapperV1::new(supervisor.clone(), health.clone(), Prober::new(settings), guard);
        let _notifier = tokio::spawn(notifier.run(service, supervisor, health, Level::Process));
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
        assert!(fed.is_err(), "told that all is well while the supervisor hangs");
        let _supervision = tokio::spawn(task.run());
        tokio::time::timeout(Duration::from_secs(60), feeds()).await.unwrap();
    }

    #[test]
    fn ready_does_not_wait_above_maximum_level() {
        let health = |level, goal| Health { level, goal, ..Health::default() };
        for (level, goal, wanted, ready) in [
            (Level::Process, Level::Process, Level::Polling, true),
            (Level::Process, Level::Process, Level::Process, true),
            (Level::Process, Level::Polling, Level::Polling, false),
            (Level::Ready, Level::Polling, Level::Ready, true),
            (Level::None, Level::Process, Level::Polling, false),
            // Before the first probe the maximum level is unknown.
            (Level::None, Level::None, Level::Process, false),
        ] {
            assert_eq!(is_ready(&health(level, goal), wanted), ready, "{level:?} {goal:?} {wanted:?}");
        }
    }

    #[test]
    fn notify_socket_path_or_abstract() {
        assert!(manager(OsStr::new("/run/systemd/notify")).unwrap().as_pathname().is_some());
        assert_eq!(manager(OsStr::new("@x")).unwrap().as_abstract_name(), Some(&b"x"[..]));
    }
}
