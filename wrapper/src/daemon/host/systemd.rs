//! Notifications for systemd: `Type=notify`, a status line, and the watchdog.
//!
//! READY is sent once, when the runner has reached the level of `--ready-when`, so that units that are ordered after this one start when the
//! runner is usable. If the runner cannot reach this level, because it has no HTTP server, READY is sent at its maximum level, with a
//! warning. A wrapper whose runner is drained or draining sends READY immediately: otherwise systemd would stop it at its start timeout and
//! start another wrapper. For an adopted runner READY requires no level: see `run.rs`. Without `NOTIFY_SOCKET` in the environment nothing is sent.
//!
//! A wrapper whose runner is running and has not reached the level extends its start timeout: at the timeout, systemd would stop the wrapper, and
//! so drain the sections that work, again and again. A crash loop ends at the timeout.

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

use grit_proto::json::short;
use grit_proto::wrapper_v1::{Health, State, Status};
use tokio::time::{MissedTickBehavior, interval, sleep};
use tracing::warn;

use crate::supervise::Handle;
use crate::{
    daemon::{control::Control, status},
    runner::Level,
    text::visible::visible_line,
};

/// Delay before a failed message is sent again: the queue of the service manager may be full for a moment.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Extends the start timeout to this time from now, and the interval between two such messages.
const EXTEND_TIMEOUT: &str = "EXTEND_TIMEOUT_USEC=120000000\n";
const EXTEND_INTERVAL: Duration = Duration::from_secs(30);

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

    /// Notifies systemd until the end of the supervisor. READY=1 requires the level `ready`.
    pub async fn run(self, control: Control, supervisor: Handle, ready: Level) {
        // A third of the maximum interval: a start on a slow host may delay a response by more than half a minute. Without a watchdog the
        // interval has no effect.
        let mut alive = interval(self.watchdog.map_or(Duration::from_secs(3600), |limit| limit / 3));
        alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut extend = interval(EXTEND_INTERVAL);
        extend.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut changes, unknown) = (control.changes(), Health::default());
        // The service starts, although this wrapper first finishes the shutdown of an earlier one: systemd starts another wrapper after it.
        let mut sent = Sent { stopping: supervisor.now().leaving, ..Sent::default() };
        let mut is_failing = false;
        let mut warned = false;
        loop {
            let status = changes.status();
            let seen = status.health.as_ref().unwrap_or(&unknown);
            let is_ready = is_ready(seen, ready);
            if is_ready && seen.level() < ready && !std::mem::replace(&mut warned, true) {
                warn!(
                    ready_when = short(ready.as_str_name()),
                    level = short(seen.level().as_str_name()),
                    reasons = ?seen.reasons,
                    "sending READY=1 at a level below --ready-when, because higher levels need the \
                     runner's HTTP server; set listen_address in the runner's configuration, or \
                     --runner-listen-address"
                );
            }
            let (message, next) = sent.changes(&status, is_ready, ready);
            let mut is_sent = true;
            if !message.is_empty() {
                is_sent = self.send(&message, &mut is_failing);
            }
            if is_sent {
                sent = next;
            }
            tokio::select! {
                changed = changes.next() => if changed.is_none() { return },
                () = sleep(RETRY_DELAY), if !is_sent => {}
                // Not while stopping, because it would extend the stop timeout.
                _ = extend.tick(), if sent.waits_for_ready(&status) => {
                    self.send(EXTEND_TIMEOUT, &mut is_failing);
                }
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

/// Whether the runner has the wanted level, or the highest that it can reach. `Level::None` needs no probe.
fn is_ready(health: &Health, wanted: Level) -> bool {
    let max = health.level_max();
    wanted == Level::None || (max > Level::Unspecified && health.level() >= wanted.min(max))
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
    fn changes(&self, status: &Status, is_ready: bool, wanted: Level) -> (String, Self) {
        let mut next = self.clone();
        let message = next.message(status, is_ready, wanted);
        (message, next)
    }

    /// Whether READY=1 is still to come, and can come.
    fn waits_for_ready(&self, status: &Status) -> bool {
        let is_possible = status.state() == State::Running && !status.crash_loop;
        !self.ready && !status.shutting_down && is_possible
    }

    fn message(&mut self, status: &Status, is_ready: bool, wanted: Level) -> String {
        let mut message = String::new();
        let is_up = status.state() == State::Running && is_ready;
        if !self.ready && (is_up || status.drain.is_some()) {
            self.ready = true;
            message += "READY=1\n";
        }
        if !self.stopping && status.shutting_down {
            self.stopping = true;
            message += "STOPPING=1\n";
        }
        let mut line = format!("The runner {}", status::line(status));
        if !self.ready && status.state() == State::Running {
            line += &format!("; systemd waits for the level {}", short(wanted.as_str_name()));
            if let Some(reason) = status.health.as_ref().and_then(|health| health.reasons.first()) {
                line += &format!(": {}", visible_line(reason));
            }
        }
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
    use tokio::sync::watch;

    use super::*;
    use crate::supervise::{
        self, End, Mode, Policy, Stop, Supervision, Task,
        process::{CommandLine, Spawner},
    };
    use crate::{
        daemon::callback::AllowedUrls,
        runner::{self, Prober, Source},
    };

    #[test]
    fn ready_and_stopping_are_sent_once() {
        let mut sent = Sent::default();
        let mut status = status::status(&Supervision::default(), &runner::Health::default());
        status.set_state(State::Starting);
        assert_eq!(sent.message(&status, false, Level::Process), "STATUS=The runner is starting\n");
        status.set_state(State::Running);
        assert_eq!(
            sent.message(&status, true, Level::Process),
            "READY=1\nSTATUS=The runner is running, health level none\n"
        );
        assert_eq!(sent.message(&status, true, Level::Process), "");
        status.set_state(State::Draining);
        status.shutting_down = true;
        assert_eq!(
            sent.message(&status, false, Level::Process),
            "STOPPING=1\nSTATUS=The runner is draining\n"
        );
        assert_eq!(sent.message(&status, false, Level::Process), "");
    }

    /// At the start timeout, systemd would drain the sections that work, and start another wrapper with the same problem.
    #[test]
    fn start_timeout_is_extended_while_level_can_be_reached() {
        let mut sent = Sent::default();
        let mut status = status::status(&Supervision::default(), &runner::Health::default());
        status.set_state(State::Running);
        let health = status.health.as_mut().unwrap();
        health.set_level(Level::Ready);
        health.reasons = vec!["section b does not poll".to_owned()];
        assert_eq!(
            sent.message(&status, false, Level::Polling),
            "STATUS=The runner is running, health level ready; systemd waits for the level polling: section b does not poll\n"
        );
        assert!(sent.waits_for_ready(&status));
        for (state, crash_loop, shutting_down) in
            [(State::Running, true, false), (State::Failed, false, false), (State::Running, false, true)]
        {
            let other = Status { state: state.into(), crash_loop, shutting_down, ..status.clone() };
            assert!(!sent.waits_for_ready(&other), "{state:?}");
        }
        sent.message(&status, true, Level::Polling);
        assert!(!sent.waits_for_ready(&status));
    }

    #[test]
    fn draining_sends_ready_without_level() {
        let stop = Some(Stop::new("deploy-7", Mode::Graceful));
        let state = supervise::State::Exited { end: End::NeverStarted, stop };
        let supervision = Supervision { state, ..Supervision::default() };
        let draining = status::status(&supervision, &runner::Health::default());
        for state in [State::Draining, State::Terminating, State::Stopped] {
            let status = Status { state: state.into(), ..draining.clone() };
            assert!(
                Sent::default().message(&status, false, Level::Process).starts_with("READY=1\n"),
                "{state:?}"
            );
        }
        // A runner that exited unexpectedly, and is not restarted, never became ready.
        let status = Status { state: State::Failed.into(), drain: None, ..draining };
        assert!(!Sent::default().message(&status, false, Level::Process).contains("READY"));
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
        let (task, supervisor) = Task::new(Policy::default(), Spawner::new(command), ());
        let source = Source::new(&[], |_| None);
        let settings = runner::Settings { source, interval: runner::Settings::INTERVAL };
        let (_publish, health) = watch::channel(runner::Health::default());
        let control = Control::new(supervisor.clone(), health, Prober::new(settings), AllowedUrls::default());
        let _notifier = tokio::spawn(notifier.run(control, supervisor, Level::Process));
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
    fn ready_does_not_wait_above_maximum_level() {
        let health = |level: Level, max: Level| Health {
            level: level.into(),
            level_max: max.into(),
            ..Health::default()
        };
        for (level, max, wanted, ready) in [
            (Level::Process, Level::Process, Level::Polling, true),
            (Level::Process, Level::Process, Level::Process, true),
            (Level::Process, Level::Polling, Level::Polling, false),
            (Level::Ready, Level::Polling, Level::Ready, true),
            (Level::None, Level::Process, Level::Polling, false),
            // Before the first probe.
            (Level::None, Level::Unspecified, Level::Process, false),
            (Level::None, Level::Unspecified, Level::None, true),
        ] {
            assert_eq!(is_ready(&health(level, max), wanted), ready, "{level:?} {max:?} {wanted:?}");
        }
    }

    #[test]
    fn notify_socket_may_be_a_path_or_abstract() {
        assert!(manager(OsStr::new("/run/systemd/notify")).unwrap().as_pathname().is_some());
        assert_eq!(manager(OsStr::new("@x")).unwrap().as_abstract_name(), Some(&b"x"[..]));
    }
}
