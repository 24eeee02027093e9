//! Prints the event log as readable text while it grows.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use crate::lab::event::{Event, EventLog, Moment, What};

/// A thread that prints; [`Timeline::finish`] prints what is left.
#[derive(Debug)]
pub(super) struct Timeline {
    done: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Timeline {
    /// Starts to print new events.
    pub(super) fn start(events: &EventLog) -> Timeline {
        let done = Arc::new(AtomicBool::new(false));
        let (events, finished) = (events.clone(), Arc::clone(&done));
        let thread = std::thread::spawn(move || {
            let mut texts = Texts::default();
            let mut seen = 0;
            loop {
                // Read before the log, so that all events before `finish` are printed.
                let last = finished.load(Ordering::Acquire);
                while let Some(event) = events.wait_from(seen, Duration::ZERO, |_| true) {
                    seen = event.seq + 1;
                    if let Some(text) = texts.text(&event) {
                        print(&event, &text);
                    }
                }
                if last {
                    return;
                }
                events.wait_from(seen, Duration::from_millis(100), |_| true);
            }
        });
        Timeline { done, thread }
    }

    /// Prints the remaining events and ends.
    pub(super) fn finish(self) {
        self.done.store(true, Ordering::Release);
        // A panic of the thread is already on stderr.
        let _ = self.thread.join();
    }
}

#[expect(clippy::print_stdout, reason = "the demo is there to be read")]
fn print(event: &Event, text: &str) {
    println!("{:>7.2} s  {:<10}  {text}", event.at.as_secs_f64(), event.subject);
}

/// The texts, and the number of jobs on each host.
#[derive(Debug, Default)]
struct Texts {
    jobs: BTreeMap<String, usize>,
}

impl Texts {
    fn text(&mut self, event: &Event) -> Option<String> {
        let jobs = self.jobs.entry(event.subject.clone()).or_default();
        Some(match &event.what {
            What::InstanceCreated { version, .. } => format!("instance created, with runner {version}"),
            What::RunnerPolling { .. } => "runner takes jobs".to_owned(),
            What::RunnerSignal { signal, jobs, .. } if signal == "SIGQUIT" => {
                format!("drain started with {jobs} jobs")
            }
            What::RunnerSignal { signal, jobs, .. } => format!("{signal} with {jobs} jobs"),
            What::RunnerIdle { .. } => "last job ended, executors shut down".to_owned(),
            What::RunnerExiting { code, .. } => format!("runner terminated, exit code {code}"),
            What::InstanceTerminating { runner_alive: true, jobs } => {
                format!("INSTANCE DESTROYED under a live runner with {jobs} jobs")
            }
            What::InstanceRemoved { lost: 0 } => "instance removed".to_owned(),
            What::InstanceRemoved { lost } => format!("instance removed, {lost} jobs LOST"),
            What::JobStarted { .. } => {
                *jobs += 1;
                return None;
            }
            What::JobFinished { job } => {
                *jobs = jobs.saturating_sub(1);
                format!("job {job} finished, {jobs} left")
            }
            What::JobLost { job, why } => {
                *jobs = jobs.saturating_sub(1);
                format!("job {job} LOST: {why}")
            }
            What::Terraform { address, action, moment } => terraform(address, action, *moment)?,
            What::Note { text } => text.clone(),
            What::InstanceBooted { .. }
            | What::InstanceTerminating { .. }
            | What::RunnerStarted { .. }
            | What::JobQueued { .. }
            | What::JobRequestOpened { .. }
            | What::JobRequestClosed { .. }
            | What::Log { .. } => return None,
        })
    }
}

fn terraform(address: &str, action: &str, moment: Moment) -> Option<String> {
    let health_check = address.starts_with("grit_runner_health.") && matches!(action, "create" | "update");
    match moment {
        Moment::Start if health_check => Some("health check: waits for every runner manager".to_owned()),
        Moment::Complete if health_check => Some("health check: all healthy".to_owned()),
        Moment::Complete if action == "delete" => Some(format!("{address} is gone")),
        Moment::Error => Some(format!("{action} {address} FAILED")),
        Moment::Start | Moment::Complete => None,
    }
}
