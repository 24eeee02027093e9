//! The pictures of `docs/pictures/`. `cargo xtask gen` writes them.
//!
//! Two of them are drawn from descriptions in this directory, and two from recorded events: `cargo xtask gen --record` runs the scenarios of
//! `tests/tests/e2e/pictures.rs`, which records them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod apply_order;
mod call_path;
mod drain_start;
mod runner_states;

use std::{
    fs,
    path::{Path, PathBuf},
};

use grit_testkit::{
    generated::assert_generated,
    svg::{DARK, LIGHT, Point, line, rect, text},
};
use serde_json::Value as Json;

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures").join(name)
}

/// A recorded run.
fn recorded(name: &str) -> Json {
    serde_json::from_str(&fs::read_to_string(path(name)).unwrap()).unwrap()
}

/// The records in a list.
fn list<'a>(json: &'a Json, name: &str) -> &'a [Json] {
    json[name].as_array().unwrap()
}

fn number(json: &Json, name: &str) -> f64 {
    json[name].as_f64().unwrap()
}

fn word<'a>(json: &'a Json, name: &str) -> &'a str {
    json[name].as_str().unwrap()
}

/// The time axis: its place, and the seconds that it shows.
struct Axis {
    left: f64,
    width: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn x(&self, at: f64) -> f64 {
        self.left + (at - self.from) / (self.to - self.from) * self.width
    }

    /// A line for each second.
    fn draw(&self, svg: &mut String, top: f64, bottom: f64) {
        let mut second = self.from.ceil();
        while second <= self.to {
            line(svg, self.x(second), top, bottom, "#eaeef2");
            text(svg, (self.x(second), bottom + 16.0), "middle", LIGHT, &format!("{second} s"));
            second += 1.0;
        }
    }

    /// A bar that is wide enough to be visible.
    fn bar(&self, svg: &mut String, (from, to): (f64, f64), (y, height): (f64, f64), color: &str) {
        let (from, to) = (from.max(self.from), to.min(self.to));
        rect(svg, (self.x(from), y), ((self.x(to) - self.x(from)).max(3.0), height), color);
    }
}

/// Coloured squares with their meanings, from left to right.
fn legend(svg: &mut String, (mut x, y): Point, entries: &[(&str, &str)]) {
    for (color, meaning) in entries {
        rect(svg, (x, y), (11.0, 11.0), color);
        text(svg, (x + 17.0, y + 10.0), "start", DARK, meaning);
        x += 42.0 + 7.2 * meaning.len() as f64;
    }
}

/// Asserts that the file is as drawn, or writes it.
#[track_caller]
fn compare(name: &str, svg: &str) {
    assert_generated(&path(name), svg);
}
