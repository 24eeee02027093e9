//! The order of one apply, from a run of Terraform with `examples/rollouts/versions-as-keys`. The end-to-end test
//! `picture_of_apply_order_has_order_of_a_run` records it, and compares the order of its operations with each run.

use grit_testkit::svg::{DARK, LIGHT, begin, line, text};
use serde_json::Value as Json;

use super::{Axis, compare, legend, list, number, recorded, word};

const CREATE: &str = "#4c9a6a";
const WAIT: &str = "#7b5ea7";
const DRAIN: &str = "#e3963e";
const DELETE: &str = "#8b949e";

/// The steps in their order: title, action and type, colour.
const STEPS: [(&str, &str, &str, &str); 5] = [
    ("1. create the new instances", "create", "aws_instance", CREATE),
    ("2. create their drains", "create", "grit_runner_drain", CREATE),
    ("3. health check", "update", "grit_runner_health", WAIT),
    ("4. destroy the old drains", "delete", "grit_runner_drain", DRAIN),
    ("5. destroy the old instances", "delete", "aws_instance", DELETE),
];

/// The operations of a step, by address.
fn operations<'a>(run: &'a Json, action: &str, kind: &str) -> Vec<&'a Json> {
    let of_step = |operation: &&Json| {
        word(operation, "action") == action && word(operation, "address").split('.').next() == Some(kind)
    };
    let mut operations: Vec<_> = list(run, "operations").iter().filter(of_step).collect();
    operations.sort_by_key(|operation| word(operation, "address"));
    operations
}

#[test]
fn picture_of_apply_order_is_current() {
    let run = recorded("apply-order.json");
    let rows = list(&run, "operations").len() as f64;
    let end = list(&run, "operations").iter().map(|operation| number(operation, "to")).fold(0.0, f64::max);
    let axis = Axis { left: 320.0, width: 510.0, from: 0.0, to: end + 0.6 };
    let (top, lane, height) = (16.0, 28.0, 14.0);
    let bottom = top + rows * lane;
    let mut svg = begin(
        (860.0, bottom + 56.0),
        13.0,
        "The order of one apply that replaces version 1 with version 2",
        "Terraform creates the instances and the drains of version 2, waits for the health check, destroys the drains of version 1, which waits \
         until the old runners have finished their jobs and exited, and then destroys the instances of version 1.",
    );
    axis.draw(&mut svg, top, bottom);
    let mut y = top;
    for (title, action, kind, color) in STEPS {
        text(&mut svg, (14.0, y + 18.0), "start", DARK, title);
        for operation in operations(&run, action, kind) {
            let host = word(operation, "address").split('"').nth(1).unwrap_or("all managers");
            text(&mut svg, (310.0, y + 18.0), "end", LIGHT, host);
            let (from, to) = (number(operation, "from"), number(operation, "to"));
            axis.bar(&mut svg, (from, to), (y + 7.0, height), color);
            for signal in list(&run, "signals").iter().filter(|signal| word(signal, "host") == host) {
                let (at, what) = (number(signal, "at"), word(signal, "what"));
                let is_shown = match what {
                    "requests jobs" => kind == "aws_instance",
                    _ => (action, kind) == ("delete", "grit_runner_drain"),
                };
                if is_shown {
                    let x = axis.x(at);
                    line(&mut svg, x, y + 4.0, y + 24.0, DARK);
                    let (x, anchor) = if what == "SIGQUIT" { (x - 4.0, "end") } else { (x + 4.0, "start") };
                    text(&mut svg, (x, y + 18.0), anchor, DARK, what);
                }
            }
            y += lane;
        }
    }
    legend(
        &mut svg,
        (60.0, bottom + 32.0),
        &[
            (CREATE, "create"),
            (WAIT, "wait for the new runners"),
            (DRAIN, "wait for jobs and exit"),
            (DELETE, "destroy"),
        ],
    );
    compare("apply-order.svg", &(svg + "</svg>\n"));
}

#[test]
fn recorded_apply_has_the_steps_in_order() {
    let run = recorded("apply-order.json");
    let starts = STEPS.map(|(title, action, kind, _)| {
        let operations = operations(&run, action, kind);
        let expected = if kind == "grit_runner_health" { 1 } else { 2 };
        assert_eq!(operations.len(), expected, "{title}");
        operations.iter().map(|operation| number(operation, "from")).fold(f64::MAX, f64::min)
    });
    assert!(starts.is_sorted(), "{starts:?}");
}
