//! Draws the event log of the demo as an SVG: for each instance its phases and its number of jobs over time.

use std::{fmt::Write as _, time::Duration};

use grit_testkit::svg::{self, DARK, line, rect, text};

use crate::lab::event::{Event, Moment, What};

const LABELS: f64 = 92.0;
const PLOT: f64 = 760.0;
const LANE: f64 = 34.0;
const TOP: f64 = 52.0;

/// The phases of an instance, in order, with the colour and the text of the legend.
const PHASES: [(&str, &str); 4] = [
    ("#c9d1d9", "host boots, runner starts"),
    ("#4c9a6a", "runner accepts jobs"),
    ("#e3963e", "drain: no new jobs"),
    ("#8b949e", "runner exited"),
];
const JOBS: &str = "#0b3d91";
const TERRAFORM: &str = "#7b5ea7";

/// One instance: the begin of each phase, the removal, and the number of jobs after each change.
struct Lane<'a> {
    name: &'a str,
    begins: [Option<Duration>; PHASES.len()],
    removed: Option<Duration>,
    jobs: Vec<(Duration, usize)>,
}

/// The SVG.
pub(super) fn draw(events: &[Event]) -> String {
    let lanes = lanes(events);
    let terraform = terraform(events);
    let begin = lanes.iter().filter_map(|lane| lane.begins[0]).min().unwrap_or_default();
    let end = events.last().map_or(begin, |event| event.at);
    let length = end.saturating_sub(begin).as_secs_f64().max(1.0);
    let x = |at: Duration| LABELS + at.saturating_sub(begin).as_secs_f64() / length * PLOT;
    let rows = count(lanes.len() + terraform.len());
    let (width, bottom) = (LABELS + PLOT + 12.0, TOP + rows * LANE);

    let title = "A rollout under load: jobs, health check and drains over time";
    let about = "From the event log of the demo: each instance boots, accepts jobs, drains and exits.";
    let mut svg = svg::begin((width, bottom + 46.0), 11.0, title, about);
    for second in 0..=length as u32 {
        let at = x(begin + Duration::from_secs(second.into()));
        line(&mut svg, at, TOP, bottom, "#eaeef2");
        text(&mut svg, (at, bottom + 14.0), "middle", DARK, &format!("{second} s"));
    }
    let steps: Vec<_> = steps(events).map(|(at, title)| (x(at.max(begin)), title)).collect();
    for (number, (at, title)) in steps.iter().enumerate() {
        let row = if number % 2 == 0 { 10.0 } else { 26.0 };
        let next = steps.get(number + 1).map_or(LABELS + PLOT, |(next, _)| *next);
        let (anchor, gap) = if next - at < 150.0 { ("end", -4.0) } else { ("start", 4.0) };
        line(&mut svg, *at, row, bottom, "#57606a");
        text(&mut svg, (at + gap, row + 10.0), anchor, DARK, title);
    }
    let mut top = TOP;
    for (name, spans) in &terraform {
        text(&mut svg, (LABELS - 8.0, top + 20.0), "end", DARK, name);
        let height = (LANE - 12.0) / count(spans.len().clamp(1, 4));
        for (row, (from, to)) in spans.iter().enumerate() {
            let y = top + 6.0 + height * count(row % 4);
            bar(&mut svg, (x(*from), x(*to)), y, height - 1.0, TERRAFORM);
        }
        top += LANE;
    }
    for lane in &lanes {
        text(&mut svg, (LABELS - 8.0, top + 20.0), "end", DARK, lane.name);
        let removed = lane.removed.unwrap_or(end);
        for (phase, (colour, _)) in PHASES.iter().enumerate() {
            let next = lane.begins[phase + 1..].iter().flatten().next().copied();
            if let Some(from) = lane.begins[phase] {
                bar(&mut svg, (x(from), x(next.unwrap_or(removed))), top + 6.0, LANE - 12.0, colour);
            }
        }
        let outline: String = lane
            .jobs
            .iter()
            .map(|(at, jobs)| format!("H{:.1}V{:.1}", x(*at), top + LANE - 6.0 - 4.0 * count(*jobs)))
            .collect();
        if let Some((first, _)) = lane.jobs.first() {
            let _infallible = writeln!(
                svg,
                "<path d=\"M{:.1} {:.1}{outline}V{1:.1}Z\" fill=\"{JOBS}\"/>",
                x(*first),
                top + LANE - 6.0
            );
        }
        top += LANE;
    }
    let legend = PHASES.iter().chain([&(JOBS, "number of jobs"), &(TERRAFORM, "Terraform waits")]);
    let mut at = LABELS;
    for (colour, label) in legend {
        bar(&mut svg, (at, at + 10.0), bottom + 25.0, 10.0, colour);
        text(&mut svg, (at + 14.0, bottom + 34.0), "start", DARK, label);
        at += 34.0 + 5.6 * count(label.len());
    }
    svg + "</svg>\n"
}

/// The instances, in the order of their creation.
fn lanes(events: &[Event]) -> Vec<Lane<'_>> {
    let mut lanes: Vec<Lane<'_>> = Vec::new();
    for event in events {
        if let What::InstanceCreated { .. } = event.what {
            let begins = [Some(event.at), None, None, None];
            lanes.push(Lane { name: &event.subject, begins, removed: None, jobs: Vec::new() });
        }
        let Some(lane) = lanes.iter_mut().find(|lane| lane.name == event.subject) else { continue };
        let jobs = lane.jobs.last().map_or(0, |(_, jobs)| *jobs);
        match &event.what {
            What::RunnerPolling { .. } => lane.begins[1] = Some(event.at),
            What::RunnerSignal { signal, .. } if signal == "SIGQUIT" => lane.begins[2] = Some(event.at),
            What::RunnerExiting { .. } => lane.begins[3] = Some(event.at),
            What::InstanceRemoved { .. } => lane.removed = Some(event.at),
            What::JobStarted { .. } => lane.jobs.push((event.at, jobs + 1)),
            What::JobFinished { .. } | What::JobLost { .. } => {
                lane.jobs.push((event.at, jobs.saturating_sub(1)));
            }
            _ => {}
        }
    }
    lanes
}

/// From and to.
type Span = (Duration, Duration);

/// The waits of Terraform: creates and updates of the health check, destroys of drains.
fn terraform(events: &[Event]) -> [(&'static str, Vec<Span>); 2] {
    let spans = |kind: &str, actions: &[&str]| {
        let (mut open, mut spans) = (Vec::new(), Vec::new());
        for event in events {
            let What::Terraform { address, action, moment } = &event.what else { continue };
            if !address.starts_with(kind) || !actions.contains(&action.as_str()) {
                continue;
            }
            match moment {
                Moment::Start => open.push((address, event.at)),
                Moment::Complete | Moment::Error => {
                    if let Some(place) = open.iter().position(|(started, _)| *started == address) {
                        spans.push((open.remove(place).1, event.at));
                    }
                }
            }
        }
        spans
    };
    [
        ("health check", spans("grit_runner_health.", &["create", "update"])),
        ("drains", spans("grit_runner_drain.", &["delete"])),
    ]
}

/// The steps of the demo, which it notes as `== title ==`.
fn steps(events: &[Event]) -> impl Iterator<Item = (Duration, &str)> {
    events.iter().filter_map(|event| match &event.what {
        What::Note { text } => Some((event.at, text.strip_prefix("== ")?.strip_suffix(" ==")?)),
        _ => None,
    })
}

fn count(number: usize) -> f64 {
    u32::try_from(number).map_or(f64::INFINITY, f64::from)
}

fn bar(svg: &mut String, (from, to): (f64, f64), y: f64, height: f64, colour: &str) {
    rect(svg, (from, y), (to - from, height), colour);
}
