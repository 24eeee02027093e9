//! The order of one apply, as in `docs/pictures/apply-order.svg`.

use grit_tests::lab::{event::Moment, queue::LongPolling};
use serde::{Deserialize, Serialize};

use super::*;
use crate::pictures;

/// The data of the picture. Times are seconds since the first operation.
#[derive(Debug, Serialize, Deserialize)]
struct Picture {
    operations: Vec<Operation>,
    signals: Vec<Signal>,
}

/// An operation of Terraform.
#[derive(Debug, Serialize, Deserialize)]
struct Operation {
    address: String,
    action: String,
    from: f64,
    to: f64,
}

/// What a runner did.
#[derive(Debug, Serialize, Deserialize)]
struct Signal {
    host: String,
    what: String,
    at: f64,
}

/// One apply from v1 to v2, with jobs that end after SIGQUIT.
#[test]
fn picture_of_apply_order_has_order_of_a_run() {
    let mut example = Example::with_boot("versions-as-keys", Duration::from_millis(1500));
    // So that SIGQUIT follows soon after the request.
    example.lab.queue().set_long_polling(LongPolling::Off);
    example.apply(json!({ "versions": versions(&["blue", "green"]), "active_versions": ["v1"] })).succeeded();
    let held = example.lab.queue().hold_on(&["blue-v1", "green-v1"], PATIENCE);
    let (queue, events) = (example.lab.queue().clone(), example.lab.events().clone());
    let from = example.now();
    let release = std::thread::spawn(move || {
        for (host, job) in ["blue-v1", "green-v1"].into_iter().zip(held) {
            let drains = |event: &Event| event.subject == host && is_signal(event, "SIGQUIT");
            events.wait_for(&format!("{host} drains"), DRAIN_LIMIT, drains);
            std::thread::sleep(Duration::from_secs(1));
            queue.release(&[job]);
        }
    });
    example.apply(json!({ "active_versions": ["v2"] })).succeeded();
    release.join().unwrap();
    example.assert_rolled(from, &["blue-v1", "green-v1"], &["blue-v2", "green-v2"]);

    let run = picture(&example.lab.events().all()[from..]);
    let recorded: Picture = pictures::recorded("apply-order.json", &run);
    assert_eq!(steps(&run), steps(&recorded), "in\n{}", example.lab.events());
    for picture in [&run, &recorded] {
        let start = |kind: &str| picture.of(kind).map(|operation| operation.from).fold(f64::MAX, f64::min);
        let end = |kind: &str| picture.of(kind).map(|operation| operation.to).fold(0.0, f64::max);
        assert!(end("create grit_runner_drain") <= start("update grit_runner_health"), "{picture:?}");
        assert!(end("update grit_runner_health") <= start("delete grit_runner_drain"), "{picture:?}");
        assert!(start("delete grit_runner_drain") < start("delete aws_instance"), "{picture:?}");
    }
}

impl Picture {
    /// The operations of this action and type.
    fn of(&self, kind: &str) -> impl Iterator<Item = &Operation> {
        self.operations.iter().filter(move |operation| operation.kind() == kind)
    }
}

impl Operation {
    fn kind(&self) -> String {
        format!("{} {}", self.action, self.address.split('.').next().unwrap())
    }
}

/// Each kind of operation, and each thing that runners do, in the order of its first occurrence.
fn steps(picture: &Picture) -> Vec<String> {
    let operations = picture.operations.iter().map(|operation| (operation.from, operation.kind()));
    let mut steps: Vec<_> = operations.collect();
    steps.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let mut names: Vec<String> = Vec::new();
    let signals = picture.signals.iter().map(|signal| signal.what.clone());
    for name in steps.into_iter().map(|(_, kind)| kind).chain(signals) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn picture(events: &[Event]) -> Picture {
    let is_operation = |event: &&Event| matches!(event.what, What::Terraform { .. });
    let begin = events.iter().find(is_operation).unwrap();
    let time = |event: &Event| pictures::seconds(begin, event);
    let (mut operations, mut signals) = (Vec::new(), Vec::new());
    for event in events {
        let what = match &event.what {
            What::Terraform { address, action, moment: Moment::Start } => {
                let complete = What::Terraform {
                    address: address.clone(),
                    action: action.clone(),
                    moment: Moment::Complete,
                };
                let end = events.iter().find(|event| event.what == complete).unwrap();
                let (address, action) = (address.clone(), action.clone());
                operations.push(Operation { address, action, from: time(event), to: time(end) });
                continue;
            }
            What::RunnerPolling { .. } => "requests jobs",
            What::RunnerSignal { signal, .. } => signal,
            What::RunnerExiting { .. } => "exits",
            _ => continue,
        };
        signals.push(Signal { host: event.subject.clone(), what: what.to_owned(), at: time(event) });
    }
    Picture { operations, signals }
}
