//! The begin of a drain, from a run of the wrapper with the stand-in of the runner. The end-to-end test
//! `picture_of_drain_start_has_order_of_a_run` records it, and compares the order of its events with each run.

use grit_testkit::svg::{DARK, begin, line, text};

use super::{Axis, compare, legend, list, number, recorded, word};

const REQUEST: &str = "#2f81b7";
const ASSIGNED: &str = "#d97b29";
const JOB: &str = "#4c9a6a";
const WAIT: &str = "#8b949e";

/// Milestones with a line, the anchor of the text, and the row of the text.
const MARKED: [(&str, &str, f64); 5] = [
    ("GitLab assigns job 2", "end", 1.0),
    ("drain requested", "start", 0.0),
    ("no job request is open", "end", 1.0),
    ("SIGQUIT", "start", 1.0),
    ("runner exits", "end", 0.0),
];

#[test]
fn picture_of_drain_start_is_current() {
    let run = recorded("drain-start.json");
    let at = |what: &str| {
        let milestone = list(&run, "milestones").iter().find(|milestone| word(milestone, "what") == what);
        number(milestone.unwrap(), "at")
    };
    let exit = at("runner exits");
    let axis = Axis { left: 160.0, width: 680.0, from: -2.0, to: exit + 0.2 };
    let (top, lane, height) = (64.0, 34.0, 20.0);
    let bottom = top + 5.0 * lane;
    let mut svg = begin(
        (860.0, bottom + 56.0),
        13.0,
        "The begin of a drain: open job requests, running jobs and SIGQUIT over time",
        "GitLab assigns a job to an open job request just before the drain is requested. The wrapper waits until no job request is open, and \
         then sends SIGQUIT. The runner finishes its jobs, and exits.",
    );
    axis.draw(&mut svg, top, bottom);
    let y = |row: f64| top + row * lane + (lane - height) / 2.0;
    let labels = ["requests, section 1", "requests, section 2", "job 1", "job 2", "grit-wrapper"];
    for (label, row) in labels.iter().zip([0.0, 1.0, 2.0, 3.0, 4.0]) {
        text(&mut svg, (148.0, y(row) + 15.0), "end", DARK, label);
    }
    for request in list(&run, "requests") {
        let color = if request["job"].is_null() { REQUEST } else { ASSIGNED };
        let (from, to) = (number(request, "from"), number(request, "to"));
        if to > axis.from {
            axis.bar(&mut svg, (from, to), (y(number(request, "section") - 1.0), height), color);
        }
    }
    for job in list(&run, "jobs") {
        axis.bar(
            &mut svg,
            (number(job, "from"), number(job, "to")),
            (y(1.0 + number(job, "job")), height),
            JOB,
        );
    }
    axis.bar(&mut svg, (at("drain requested"), at("SIGQUIT")), (y(4.0), height), WAIT);
    for (what, anchor, row) in MARKED {
        let x = axis.x(at(what));
        let (from, gap) = (14.0 + 22.0 * row, if anchor == "end" { -5.0 } else { 5.0 });
        line(&mut svg, x, from, bottom, DARK);
        text(&mut svg, (x + gap, from + 11.0), anchor, DARK, what);
    }
    legend(
        &mut svg,
        (60.0, bottom + 32.0),
        &[
            (REQUEST, "open job request"),
            (ASSIGNED, "open request with job 2"),
            (JOB, "job runs"),
            (WAIT, "waits for a gap"),
        ],
    );
    compare("drain-start.svg", &(svg + "</svg>\n"));
}

#[test]
fn recorded_drain_has_no_open_request_at_sigquit() {
    let run = recorded("drain-start.json");
    let order: Vec<_> = list(&run, "milestones").iter().map(|milestone| word(milestone, "what")).collect();
    assert_eq!(
        order,
        [
            "GitLab assigns job 2",
            "drain requested",
            "job 2 starts",
            "no job request is open",
            "SIGQUIT",
            "job 2 finished",
            "job 1 finished",
            "runner exits"
        ]
    );
    let quit = number(&list(&run, "milestones")[4], "at");
    assert!(list(&run, "requests").iter().all(|request| number(request, "to") <= quit), "{run}");
}
