//! Aimed faults: the way to a row of the transition table, which random times rarely meet.

use std::time::Duration;

use super::{fault, gitlab, operator::Action};
use crate::simulation::{
    fault::{
        Aimed,
        At::{self, After, BeforeDue},
        Fault,
    },
    random::Random,
};

/// The table's states, and more than one way to some of them; twice where the way often fails.
const STATES: [&str; 28] = [
    "running",
    "running, reload held",
    "running, reload held",
    "running, reload due",
    "awaiting gap, too young",
    "awaiting gap, too young",
    "awaiting gap, just sent",
    "awaiting gap, just sent",
    "awaiting gap",
    "awaiting gap, perhaps sent",
    "awaiting gap, due",
    "awaiting gap, due",
    "awaiting gap, past deadline",
    "awaiting gap, past deadline",
    "awaiting gap, perhaps sent",
    "draining",
    "draining since now",
    "refused",
    "draining, past deadline",
    "draining, slow disk",
    "spacing",
    "spacing",
    "spacing, due",
    "terminating, due",
    "killed",
    "killed",
    "killed",
    "backoff",
];

/// The states in a rollout, in which the provider makes the requests.
const OF_ROLLOUT: [&str; 7] = [
    "running",
    "awaiting gap",
    "draining since now",
    "spacing",
    "terminating",
    "backoff",
    "stopped as asked",
];

/// One aimed fault in a rollout: any fault at any of these moments.
pub(super) fn in_rollout(random: &mut Random) -> Aimed {
    let state = *random.pick(&OF_ROLLOUT);
    let at = match random.percent(20) {
        true => BeforeDue(random.millis(0, 20)),
        false => After(short(random)),
    };
    Aimed { state, at, fault: fault(random) }
}

/// The way to a state, and what happens in it. With the time that this takes.
pub(super) fn to_row(random: &mut Random) -> (Vec<Aimed>, Duration) {
    let state = *random.pick(&STATES);
    let mut aims = Vec::new();
    let mut lasts = Duration::from_secs(match state {
        "killed" => 110,
        "terminating, due" | "awaiting gap, due" | "draining, slow disk" => 90,
        _ => 60,
    });
    let event = event(random, state);
    if event == Fault::Host(Action::CallbackEnds) {
        // A callback of an earlier stop is not finished.
        aims.push(aim("running", After(random.millis(0, 2_000)), drain(random.percent(30), true, None)));
        aims.push(aim("stopped as asked", After(random.millis(0, 100)), Fault::Host(Action::Start)));
        lasts += Duration::from_secs(60);
    }
    let (last, at) = way(random, state, &mut aims);
    aims.push(aim(last, at, event));
    if random.percent(30) {
        let later = match at {
            After(after) => After(after + random.millis(0, 400)),
            BeforeDue(_) => After(random.millis(0, 20_000)),
        };
        let state = *random.pick(&STATES);
        let event = self::event(random, state);
        aims.push(aim(last, later, event));
    }
    (aims, lasts)
}

/// The faults that lead to a state. Returns the state that begins then, and the moment in it that is meant.
fn way(random: &mut Random, state: &'static str, aims: &mut Vec<Aimed>) -> (&'static str, At) {
    let ready = random.millis(0, 12_000);
    let mut add = |state, at, fault| aims.push(aim(state, at, fault));
    let before_due = BeforeDue(random.millis(0, 8));
    let long = Duration::from_secs(40);
    let deadline = Some(random.millis(20, 1_000));
    let graceful = drain(false, false, None);
    match state {
        // The runner is young.
        "running, reload held" => {
            add("running", After(random.millis(0, 2_900)), Fault::Host(Action::Reload));
            (state, After(random.millis(0, 3_000)))
        }
        "running, reload due" => {
            add("running", After(random.millis(0, 2_900)), Fault::Host(Action::Reload));
            ("running, reload held", before_due)
        }
        "awaiting gap, too young" => {
            add("running", After(random.millis(0, 2_900)), graceful);
            (state, After(random.millis(0, 3_000)))
        }
        "awaiting gap, just sent" => {
            add("running", After(ready), graceful);
            let last = if random.percent(50) { "draining since now" } else { "awaiting gap" };
            add(last, After(random.millis(0, 10)), Fault::KillWrapper);
            (state, After(random.millis(0, 30)))
        }
        "awaiting gap" => {
            add("running", After(ready), graceful);
            (state, After(short(random)))
        }
        "awaiting gap, due" | "draining, slow disk" => {
            // Its requests stay open to the limit of the wait.
            let fault = gitlab::Fault::Slow;
            add("running", After(Duration::ZERO), Fault::Gitlab { fault, lasts: 2 * long });
            if state == "draining, slow disk" {
                add("running", After(ready), Fault::Host(Action::DiskSlow { lasts: 2 * long }));
                if random.percent(50) {
                    add("running", After(ready), Fault::Host(Action::SignalsRefused { lasts: 2 * long }));
                }
            }
            add("running", After(ready), graceful);
            ("awaiting gap", before_due)
        }
        "awaiting gap, past deadline" => {
            add("running", After(ready), drain(false, false, deadline));
            ("awaiting gap", before_due)
        }
        "awaiting gap, perhaps sent" => {
            let fault = gitlab::Fault::Slow;
            add("running", After(Duration::ZERO), Fault::Gitlab { fault, lasts: long });
            add("running", After(ready), graceful);
            add("awaiting gap", After(random.millis(0, 10)), Fault::KillWrapper);
            (state, After(random.millis(0, 500)))
        }
        "draining" => {
            add("running", After(ready), graceful);
            ("draining since now", After(random.millis(500, 6_000)))
        }
        "draining since now" => {
            add("running", After(ready), graceful);
            (state, After(short(random)))
        }
        "refused" => {
            add(
                "running",
                After(ready),
                Fault::Host(Action::SignalsRefused { lasts: random.millis(500, 30_000) }),
            );
            add("running", After(ready), graceful);
            ("awaiting gap, too young", After(random.millis(0, 9_000)))
        }
        "draining, past deadline" => {
            add("running", After(ready), drain(false, false, deadline));
            ("draining since now", before_due)
        }
        "spacing" | "spacing, due" => {
            add("running", After(ready), graceful);
            add("draining since now", After(random.millis(0, 400)), drain(true, false, None));
            let at = if state == "spacing" { After(random.millis(0, 450)) } else { before_due };
            ("spacing", at)
        }
        "terminating, due" => {
            add("running", After(ready), Fault::Host(Action::CleanupHangs));
            add("running", After(ready), drain(true, false, None));
            ("terminating", before_due)
        }
        "killed" => {
            add("running", After(ready), Fault::Host(Action::CleanupHangs));
            add("running", After(ready), drain(true, false, None));
            (state, After(random.millis(0, 1_000)))
        }
        "backoff" => {
            add("running", After(ready), Fault::RunnerCrashes);
            (state, After(random.millis(0, 5_200)))
        }
        _ => (state, if random.percent(50) { After(ready) } else { before_due }),
    }
}

/// What happens in the state.
fn event(random: &mut Random, state: &'static str) -> Fault {
    if state == "draining, slow disk" {
        // SIGQUIT itself.
        return Fault::Host(Action::ServiceStarts);
    }
    if state.ends_with(" due") || state.ends_with("past deadline") {
        // Only the exit comes before the timer.
        return if random.percent(50) { Fault::RunnerCrashes } else { Fault::Host(Action::RunnerExits) };
    }
    match random.below(14) {
        0 => Fault::Host(Action::service(random)),
        1 => Fault::KillWrapper,
        2 => Fault::Host(Action::Start),
        3 => Fault::Host(Action::RunnerExits),
        4 => Fault::RunnerCrashes,
        5 => Fault::Host(Action::RunnerTerminated),
        6 => drain(false, false, None),
        7 => drain(false, true, None),
        8 => drain(true, false, None),
        9 => Fault::Host(Action::Cancel),
        10 => Fault::Host(Action::Reload),
        11 | 12 => Fault::Host(Action::CallbackEnds),
        _ => Fault::Host(Action::Terminate),
    }
}

fn drain(is_forceful: bool, has_callback: bool, deadline: Option<Duration>) -> Fault {
    Fault::Host(Action::Drain { id: 0, is_forceful, deadline, has_callback })
}

fn short(random: &mut Random) -> Duration {
    let limit = *random.pick(&[10, 100, 500]);
    random.millis(0, limit)
}

fn aim(state: &'static str, at: At, fault: Fault) -> Aimed {
    Aimed { state, at, fault }
}
