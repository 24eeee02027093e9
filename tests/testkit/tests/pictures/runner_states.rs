//! The states of a runner: the transitions are those of the wrapper's transition table.

use std::collections::BTreeSet;

use grit_testkit::svg::{DARK, LIGHT, Point, arrow, begin, frame, heading, text};

/// The snapshot that the wrapper's test `transition_table_matches_snapshot` compares with the table.
const TABLE: &str = include_str!(
    "../../../../wrapper/src/supervise/core/snapshots/grit_wrapper__supervise__core__table_tests__transition_table_matches_snapshot.snap"
);

/// A transition: from, event, to.
type Transition<'a> = (&'a str, &'a str, &'a str);

/// Transitions that are one arrow.
struct Edge {
    from: &'static [&'static str],
    events: &'static [&'static str],
    to: &'static [&'static str],
    points: &'static [Point],
    /// The lines of the label, with the place of the first one.
    label: (&'static [&'static str], Point, &'static str),
}

const fn edge(
    from: &'static [&'static str],
    events: &'static [&'static str],
    to: &'static [&'static str],
    points: &'static [Point],
    label: (&'static [&'static str], Point, &'static str),
) -> Edge {
    Edge { from, events, to, points, label }
}

const NO_LABEL: (&[&str], Point, &str) = (&[], (0.0, 0.0), "start");

/// Boxes: title, explanation, corner, size.
const BOXES: [(&str, &str, Point, Point); 4] = [
    ("idle", "", (40.0, 56.0), (110.0, 40.0)),
    ("starting", "", (215.0, 56.0), (160.0, 40.0)),
    ("backoff", "", (570.0, 56.0), (160.0, 40.0)),
    ("running", "", (215.0, 156.0), (160.0, 40.0)),
];

/// Boxes around others.
const GROUPS: [(&str, Point, Point); 2] =
    [("draining", (165.0, 264.0), (270.0, 196.0)), ("terminating", (570.0, 264.0), (222.0, 196.0))];

/// The phases in the groups.
const PHASES: [(&str, Point, Point); 6] = [
    ("waits for the signal handler", (180.0, 292.0), (240.0, 40.0)),
    ("waits for a gap in job requests", (180.0, 350.0), (240.0, 40.0)),
    ("SIGQUIT sent: jobs finish", (180.0, 408.0), (240.0, 40.0)),
    ("waits after SIGQUIT", (582.0, 292.0), (198.0, 40.0)),
    ("SIGTERM sent: jobs aborted", (582.0, 350.0), (198.0, 40.0)),
    ("SIGKILL sent", (582.0, 408.0), (198.0, 40.0)),
];

/// The states of a runner that has exited.
const EXITED: [(&str, &str, Point, Point); 2] = [
    ("stopped", "exit code 0, or never started", (165.0, 540.0), (280.0, 52.0)),
    ("failed", "another end, or start failed", (490.0, 540.0), (295.0, 52.0)),
];

const EDGES: [Edge; 20] = [
    edge(
        &["idle"],
        &["boot", "start"],
        &["starting"],
        &[(150.0, 76.0), (215.0, 76.0)],
        (&["start"], (181.0, 70.0), "middle"),
    ),
    edge(
        &["idle"],
        &["stop", "force", "leave"],
        &["exited"],
        &[(80.0, 96.0), (80.0, 580.0), (150.0, 580.0)],
        (&["drain"], (86.0, 330.0), "start"),
    ),
    edge(
        &["starting"],
        &["spawned"],
        &["running"],
        &[(295.0, 96.0), (295.0, 156.0)],
        (&["runner's command runs"], (303.0, 130.0), "start"),
    ),
    edge(
        &["starting"],
        &["spawn failed"],
        &["backoff"],
        &[(375.0, 84.0), (570.0, 84.0)],
        (&["start failed"], (472.0, 100.0), "middle"),
    ),
    edge(
        &["backoff"],
        &["tick", "start"],
        &["starting"],
        &[(570.0, 68.0), (375.0, 68.0)],
        (&["delay is over, or start"], (472.0, 62.0), "middle"),
    ),
    edge(
        &["running"],
        &["exited"],
        &["backoff"],
        &[(375.0, 168.0), (630.0, 168.0), (630.0, 96.0)],
        (&["exits, --restart applies"], (385.0, 162.0), "start"),
    ),
    edge(
        &["running"],
        &["force"],
        &["terminating"],
        &[(375.0, 184.0), (680.0, 184.0), (680.0, 264.0)],
        (&["forceful stop"], (385.0, 201.0), "start"),
    ),
    edge(
        &["running"],
        &["exited"],
        &["exited"],
        &[(215.0, 176.0), (125.0, 176.0), (125.0, 550.0), (150.0, 550.0)],
        (&["exits, no", "restart"], (207.0, 170.0), "end"),
    ),
    edge(
        &["running"],
        &["stop", "leave"],
        &["holding", "awaiting gap"],
        &[(260.0, 196.0), (260.0, 264.0)],
        (&["drain"], (252.0, 236.0), "end"),
    ),
    edge(
        &["holding", "awaiting gap", "draining"],
        &["cancel"],
        &["running"],
        &[(330.0, 264.0), (330.0, 196.0)],
        (&["cancel, before SIGQUIT is sent"], (338.0, 236.0), "start"),
    ),
    edge(&["holding"], &["tick"], &["awaiting gap"], &[(300.0, 332.0), (300.0, 350.0)], NO_LABEL),
    edge(
        &["awaiting gap"],
        &["tick", "no open request", "requests unknown"],
        &["draining"],
        &[(300.0, 390.0), (300.0, 408.0)],
        NO_LABEL,
    ),
    edge(
        &["draining"],
        &["tick"],
        &["awaiting gap"],
        &[(220.0, 408.0), (220.0, 390.0)],
        (&["if refused"], (227.0, 403.0), "start"),
    ),
    edge(
        &["holding", "awaiting gap", "draining"],
        &["force", "tick"],
        &["spacing", "terminating"],
        &[(435.0, 370.0), (570.0, 370.0)],
        (&["forceful stop,", "or deadline"], (502.0, 362.0), "middle"),
    ),
    edge(&["spacing"], &["tick"], &["terminating"], &[(681.0, 332.0), (681.0, 350.0)], NO_LABEL),
    edge(&["terminating"], &["tick"], &["killed"], &[(681.0, 390.0), (681.0, 408.0)], NO_LABEL),
    edge(
        &["holding", "awaiting gap", "draining"],
        &["exited"],
        &["exited"],
        &[(300.0, 460.0), (300.0, 512.0)],
        (&["exits"], (308.0, 490.0), "start"),
    ),
    edge(
        &["spacing", "terminating", "killed"],
        &["exited"],
        &["exited"],
        &[(681.0, 460.0), (681.0, 512.0)],
        (&["exits"], (689.0, 490.0), "start"),
    ),
    edge(
        &["backoff"],
        &["stop", "force", "leave"],
        &["exited"],
        &[(730.0, 76.0), (815.0, 76.0), (815.0, 560.0), (800.0, 560.0)],
        (&["drain"], (808.0, 230.0), "end"),
    ),
    edge(
        &["exited"],
        &["start"],
        &["starting"],
        &[(150.0, 600.0), (22.0, 600.0), (22.0, 26.0), (295.0, 26.0), (295.0, 56.0)],
        (&["start"], (30.0, 44.0), "start"),
    ),
];

const FILL: &str = "#eaf2f8";
const OUTLINE: &str = "#2f81b7";

fn draw() -> String {
    let mut svg = begin(
        (830.0, 622.0),
        13.0,
        "The states of a runner, and what changes them",
        "A started runner goes from idle over starting to running. A drain leads to draining, and a forceful stop to terminating. After its exit \
         the runner is stopped or failed, or waits in backoff for its restart.",
    );
    for (name, corner, size) in GROUPS {
        frame(&mut svg, corner, size, FILL, OUTLINE);
        heading(&mut svg, (corner.0 + size.0 / 2.0, corner.1 + 19.0), name);
    }
    for (label, corner, size) in PHASES {
        frame(&mut svg, corner, size, "#ffffff", OUTLINE);
        text(&mut svg, (corner.0 + size.0 / 2.0, corner.1 + 25.0), "middle", DARK, label);
    }
    frame(&mut svg, (150.0, 512.0), (650.0, 98.0), "#f6f8fa", LIGHT);
    text(&mut svg, (475.0, 531.0), "middle", DARK, "the runner has exited");
    for (name, about, corner, size) in BOXES.into_iter().chain(EXITED) {
        frame(&mut svg, corner, size, FILL, OUTLINE);
        let middle = corner.0 + size.0 / 2.0;
        if about.is_empty() {
            heading(&mut svg, (middle, corner.1 + 25.0), name);
        } else {
            heading(&mut svg, (middle, corner.1 + 21.0), name);
            text(&mut svg, (middle, corner.1 + 40.0), "middle", DARK, about);
        }
    }
    for Edge { points, label: (lines, (x, y), anchor), .. } in &EDGES {
        arrow(&mut svg, points, DARK);
        for (line, down) in lines.iter().zip([0.0, 22.0]) {
            text(&mut svg, (*x, y + down), anchor, DARK, line);
        }
    }
    svg + "</svg>\n"
}

/// The transitions of the table that change the state.
fn transitions() -> BTreeSet<Transition<'static>> {
    let lines = TABLE.lines().filter_map(|line| line.split_once(" -> "));
    let transitions = lines.map(|(before, after)| {
        let (state, event) = before.split_at(28);
        let to = after.split([' ', '[']).next().unwrap();
        let to = if to == "awaiting" { "awaiting gap" } else { to };
        (base(state), event.split(',').next().unwrap().trim(), base(to))
    });
    transitions.filter(|(from, _, to)| from != to).collect()
}

/// The state without its variant.
fn base(state: &str) -> &str {
    match state.split(',').next().unwrap().trim() {
        "draining since now" => "draining",
        "stopped" | "stopped as asked" | "failed" => "exited",
        state => state,
    }
}

#[test]
fn arrows_are_the_transitions_of_the_table() {
    let table = transitions();
    assert!(table.len() > 30, "{table:?}");
    let is_on = |edge: &Edge, (from, event, to): &Transition<'_>| {
        edge.from.contains(from) && edge.events.contains(event) && edge.to.contains(to)
    };
    for transition in &table {
        let arrows = EDGES.iter().filter(|edge| is_on(edge, transition)).count();
        assert_eq!(arrows, 1, "arrows for {transition:?}");
    }
    for edge in &EDGES {
        let of_edge: Vec<_> = table.iter().filter(|transition| is_on(edge, transition)).collect();
        for from in edge.from {
            assert!(of_edge.iter().any(|it| it.0 == *from), "no transition from {from} to {:?}", edge.to);
        }
        for event in edge.events {
            assert!(of_edge.iter().any(|it| it.1 == *event), "no {event} from {:?}", edge.from);
        }
        for to in edge.to {
            assert!(of_edge.iter().any(|it| it.2 == *to), "no transition from {:?} to {to}", edge.from);
        }
    }
}

#[test]
fn picture_of_runner_states_is_current() {
    super::compare("runner-states.svg", &draw());
}
