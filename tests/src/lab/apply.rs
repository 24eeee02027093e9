//! Runs a Terraform command and records its operations in the event log while they happen.

use std::{
    io::{BufRead, BufReader, Read},
    process::Stdio,
};

use anyhow::Context;

use super::event::{EventLog, Moment, What};
use crate::terraform::{Event, Run, Workspace};

/// Runs a command that supports `-json`, such as `["apply", "-json", "-auto-approve"]`.
///
/// The operations come through a pipe, so they are ordered among themselves, but later than the events of hosts and cloud.
pub fn run(events: &EventLog, workspace: &Workspace, arguments: &[&str]) -> anyhow::Result<Run> {
    let mut command = workspace.command(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("start terraform")?;
    let mut complaints = child.stderr.take().context("no standard error")?;
    let complaints = std::thread::spawn(move || {
        let mut text = Vec::new();
        // Events before an error are kept.
        let _ = complaints.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    let mut run = Run { code: None, stdout: String::new(), stderr: String::new(), events: Vec::new() };
    let output = child.stdout.take().context("no standard output")?;
    for line in BufReader::new(output).lines() {
        let line = line.context("read terraform's output")?;
        for event in Event::parse_all(&line) {
            record(events, &event);
            run.events.push(event);
        }
        run.stdout += &line;
        run.stdout.push('\n');
    }
    run.code = child.wait().context("wait for terraform")?.code();
    run.stderr = complaints.join().unwrap_or_default();
    Ok(run)
}

fn record(events: &EventLog, event: &Event) {
    let moment = match event {
        Event::ApplyStart(_) => Moment::Start,
        Event::ApplyComplete(_) => Moment::Complete,
        Event::ApplyErrored(_) => Moment::Error,
        _ => return,
    };
    if let Some(hook) = event.hook() {
        let (address, action) = (hook.address.clone(), hook.action.clone());
        events.record("terraform", What::Terraform { address, action, moment });
    }
}
