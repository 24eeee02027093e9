//! The random events of the simulation in `random_tests`.

use std::time::Duration;

use proptest::prelude::*;

use super::{policy::Policy, stop::Mode};

/// One thing that happens to a simulated supervisor.
#[derive(Clone, Debug)]
pub(super) enum RandomEvent {
    Boot,
    Start,
    Stop {
        mode: Mode,
        deadline: Option<u16>,
        callback: Option<u8>,
    },
    Cancel,
    Reload,
    Leave,
    /// Callbacks that were made are reported.
    Called,
    /// The child exits unexpectedly.
    Crash(u8),
    /// The child has so many open job requests, or does not report them.
    JobRequests(Option<u32>),
    /// Time passes, in tenths of a second.
    Wait(u16),
    /// Time passes until something is due.
    UntilDue,
    /// The next child cannot be started.
    SpawnFails,
    /// systemd starts the child of a unit. `seen`: the wrapper sees it at once.
    UnitStarts {
        seen: bool,
    },
    /// The wrapper is killed at its next signal to the child, between the state file and the signal or just after both.
    KilledAtSignal {
        sent: bool,
    },
    /// The wrapper is killed, and the next one continues. The child may have exited in between.
    Killed {
        dies: bool,
    },
    /// A probe shows that the child aborts its jobs, because of a signal of another process.
    Aborts,
    /// The state file can be written, or not.
    Saved(bool),
    /// The kernel refuses the next signal.
    SignalRefused,
    /// A log was read to its end, by now or long ago.
    LogRead,
}

impl RandomEvent {
    /// Every number is an event: drawing numbers is an order of magnitude faster than drawing variants, and smaller numbers
    /// are simpler events, so that a failure still shrinks.
    pub(super) fn from_number(number: u32) -> Self {
        let [kind, a, b, c] = number.to_be_bytes();
        let some = |byte: u8| (byte % 3 == 1).then_some(byte / 3);
        match kind % 30 {
            0 | 1 => Self::Boot,
            2 => Self::Start,
            3..=6 => Self::Stop {
                mode: if a % 2 == 0 { Mode::Graceful } else { Mode::Forceful },
                deadline: some(b).map(u16::from),
                callback: some(c).map(|name| name % 4),
            },
            7 => Self::Cancel,
            8 => Self::Reload,
            9 => Self::Leave,
            10 => Self::Called,
            11 => Self::Crash(a % 2),
            12..=15 => Self::Wait(a.into()),
            16 | 17 => Self::UntilDue,
            18 | 27 => Self::UnitStarts { seen: a % 2 == 0 },
            19 => Self::SpawnFails,
            20 | 21 => Self::Killed { dies: a % 4 == 0 },
            22 => Self::SignalRefused,
            23 | 24 => Self::JobRequests(some(a).map(|open| u32::from(open % 2))),
            25 => Self::Aborts,
            26 => Self::Saved(a % 2 == 0),
            28 => Self::KilledAtSignal { sent: a % 2 == 0 },
            _ => Self::LogRead,
        }
    }
}

pub(super) fn policies() -> impl Strategy<Value = Policy> {
    let graces = prop::sample::select(vec![Policy::START_GRACE, Duration::from_secs(30)]);
    (any::<bool>(), any::<bool>(), graces).prop_map(|(by_unit, leaves, start_grace)| Policy {
        start_grace,
        by_unit,
        leave_when_stopped: leaves && !by_unit,
        ..Policy::default()
    })
}
