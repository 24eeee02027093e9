//! How many drains lose a job that GitLab assigns at their start, and how long they wait for a gap between job requests.
//!
//! Hosts with the stand-in runner drain again and again, at different moments, beside a stand-in GitLab that assigns a job when a request
//! arrives, and responds 0.3 s later. Each runner has four workers, which send up to four requests at a time.
//!
//! A request is open for 0.6 s, until the runner has reported that the job runs. While a worker is free, the next request follows immediately.
//! So there is a gap when all four workers have a job of at least 1.5 s, or when the queue is empty. With shorter jobs and an endless queue
//! there is none: the wrapper sends SIGQUIT after `--request-gap-timeout`, and must report the open requests.
//!
//! A job can end in the milliseconds between the last read of the metrics and SIGQUIT. Such a loss cannot be prevented, but no drain with a lost job
//! may have the outcome `clean`: in no row.

use std::{
    process::Command,
    sync::mpsc::{RecvTimeoutError, channel},
    time::Duration,
};

use anyhow::{Context, anyhow, ensure};

use super::{Row, Settings, median, milliseconds};
use crate::{
    lab::{Lab, event::What, host::Host, queue::LongPolling},
    rollout::PATIENCE,
    terraform::built,
};

const BENCH: &str = "drain-start";

/// Hosts that drain at the same time.
const HOSTS: usize = 20;

const LATENCY: Duration = Duration::from_millis(300);
/// As in the rollouts with the real runner in which a job was lost.
const SLOWER: Duration = Duration::from_millis(400);
const HELD: LongPolling = LongPolling::Held(Duration::from_secs(50));
const LATE: LongPolling = LongPolling::AssignsLate(Duration::from_secs(50));

/// A job that is too short for a gap.
const SHORT: Duration = Duration::from_millis(500);

/// The longest time between a request and SIGQUIT, in ms: `--request-gap-timeout`, and time of a busy machine.
const LONGEST: f64 = 65_000.0;

#[derive(Debug, Clone, Copy)]
enum Load {
    Idle,
    /// A short job in each second.
    EachSecond,
    /// More jobs of this duration than workers.
    Endless(Duration),
}

struct Scenario {
    name: &'static str,
    /// Of `--request-gap-timeout`.
    timeout: &'static str,
    long_polling: LongPolling,
    sections: usize,
    load: Load,
    latency: Duration,
    request_concurrency: usize,
    /// The runner has been idle for so long before each drain.
    idle: Duration,
    /// Drains of each host.
    drains: usize,
    /// The largest number of drains with a lost job.
    losses: Option<f64>,
    /// The longest time between a request and SIGQUIT in the median, in ms.
    median: Option<f64>,
}

const BUSY: Scenario = Scenario {
    name: "busy",
    timeout: "60s",
    long_polling: LongPolling::Off,
    sections: 1,
    load: Load::Endless(Duration::from_secs(3)),
    latency: LATENCY,
    request_concurrency: 4,
    idle: Duration::from_secs(3),
    drains: 10,
    losses: Some(1.0),
    median: None,
};

const SCENARIOS: [Scenario; 11] = [
    Scenario { name: "busy, SIGQUIT at once", timeout: "0s", losses: None, ..BUSY },
    BUSY,
    Scenario { name: "busy, without gaps", load: Load::Endless(SHORT), drains: 1, losses: None, ..BUSY },
    Scenario {
        name: "busy, jobs of 1 s, latency 0.4 s",
        load: Load::Endless(Duration::from_secs(1)),
        latency: SLOWER,
        // The default. With more, there is no gap, and each drain waits to its limit.
        request_concurrency: 1,
        losses: None,
        ..BUSY
    },
    Scenario {
        name: "defaults of GitLab Runner, long poll, idle",
        request_concurrency: 1,
        idle: Duration::from_secs(12),
        median: Some(1_000.0),
        ..light("", HELD, 1, Load::Idle)
    },
    light("a job each second", LongPolling::Off, 1, Load::EachSecond),
    light("long poll, idle", HELD, 1, Load::Idle),
    light("long poll, a job each second", HELD, 1, Load::EachSecond),
    light("long poll of 3 sections, idle", HELD, 3, Load::Idle),
    light("long poll of 3 sections, a job each second", HELD, 3, Load::EachSecond),
    light("assigned at the end of a long poll, idle", LATE, 1, Load::Idle),
];

const fn light(name: &'static str, long_polling: LongPolling, sections: usize, load: Load) -> Scenario {
    Scenario { name, long_polling, sections, load, drains: 2, losses: Some(0.0), ..BUSY }
}

/// One drain.
#[derive(Clone)]
struct Drain {
    has_lost: bool,
    /// From the request to SIGQUIT.
    delay: Duration,
    /// The number of open requests that the wrapper reported, and the outcome.
    open: Option<u64>,
    outcome: String,
}

pub(super) fn run(settings: &Settings) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    // A drain takes longer than a smoke run may take.
    for scenario in SCENARIOS.iter().filter(|_| !settings.quick) {
        rows.extend(scenario.measure().context(scenario.name)?);
    }
    Ok(rows)
}

impl Scenario {
    /// Each host has its own GitLab, so that the drains of one do not affect the load of another.
    fn measure(&self) -> anyhow::Result<Vec<Row>> {
        let drained = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..HOSTS).map(|host| scope.spawn(move || self.drain_again_and_again(host))).collect();
            let joined =
                threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?);
            joined.collect::<anyhow::Result<Vec<_>>>()
        })?;
        Ok(self.rows(&drained.concat()))
    }

    fn drain_again_and_again(&self, number: usize) -> anyhow::Result<Vec<Drain>> {
        let lab = Lab::start()?;
        // It counts the lost jobs.
        lab.expect_anything();
        let (queue, events) = (lab.queue(), lab.events());
        queue.set_long_polling(self.long_polling);
        queue.set_latency(self.latency..=self.latency);
        let (timeout, sections) = (format!("--request-gap-timeout={}", self.timeout), self.sections);
        let request_concurrency = self.request_concurrency;
        lab.cloud().shape(move |_, spec| {
            *spec = std::mem::take(spec).under_load().wrapper(&["--start-grace=0s", &timeout]);
            spec.request_concurrency = request_concurrency;
            spec.tokens = Some((1..=sections).map(|section| format!("glrt-{section}")).collect());
        });
        let (_, host) = lab.cloud().create("m", "19.2.0")?;
        let wait = |from, what: &str, wanted: &dyn Fn(&What) -> bool| {
            events.wait_from(from, PATIENCE, |event| wanted(&event.what)).with_context(|| what.to_owned())
        };
        let polls = |from| wait(from, "no job request", &|what| matches!(what, What::RunnerPolling { .. }));
        polls(0)?;
        let _endless = match self.load {
            Load::Endless(lasts) => Some(queue.load(8, lasts)),
            Load::Idle | Load::EachSecond => None,
        };
        std::thread::scope(|scope| {
            // Dropping it ends the jobs.
            let (_stop, stopped) = channel::<()>();
            if matches!(self.load, Load::EachSecond) {
                scope.spawn(move || {
                    while stopped.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
                        queue.submit(1, SHORT);
                    }
                });
            }
            let mut samples = Vec::new();
            for round in 0..self.drains {
                // Longer than the interval of the sections, and another time in each round.
                let pause = Duration::from_millis((number * 379 + round * 1117) as u64 % 3000);
                std::thread::sleep(self.idle + pause);
                let lost = queue.lost().len();
                let requested = events.note("bench", "drain");
                let id = format!("drain-{round}");
                let drained = ask(&host, &["drain", "--wait", "--timeout=5m", "--id", &id])?;
                let signal =
                    wait(requested.seq, "no SIGQUIT", &|what| matches!(what, What::RunnerSignal { .. }))?;
                ask(&host, &["start"])?;
                polls(signal.seq)?;
                samples.push(Drain {
                    // GitLab has received the end of the earlier process.
                    has_lost: queue.lost().len() > lost,
                    delay: signal.at - requested.at,
                    open: drained["drain"]["open_requests"].as_u64(),
                    outcome: drained["drain"]["outcome"].as_str().unwrap_or_default().to_owned(),
                });
            }
            Ok(samples)
        })
    }

    fn rows(&self, drains: &[Drain]) -> Vec<Row> {
        let row = |what: &str, value, unit| Row::new(BENCH, format!("{}: {what}", self.name), value, unit);
        let limited = |row: Row, most: Option<f64>| match most {
            Some(most) => row.limit(most),
            None => row,
        };
        let count =
            |wanted: &dyn Fn(&Drain) -> bool| drains.iter().filter(|drain| wanted(drain)).count() as f64;
        let delays: Vec<_> = drains.iter().map(|drain| milliseconds(drain.delay)).collect();
        let losses = count(&|drain| drain.has_lost);
        let undetected = count(&|drain| drain.has_lost && drain.outcome == "clean");
        vec![
            limited(row(&format!("drains of {} with a lost job", drains.len()), losses, ""), self.losses),
            row("of them, reported clean", undetected, "").limit(0.0),
            row("drains with another outcome than clean", count(&|drain| drain.outcome != "clean"), ""),
            row("drains with an open request in the report", count(&|drain| drain.open != Some(0)), ""),
            limited(row("request to SIGQUIT, median", median(&delays), "ms"), self.median),
            row("request to SIGQUIT, maximum", delays.iter().copied().fold(0.0, f64::max), "ms")
                .limit(LONGEST),
        ]
    }
}

/// The last line of the output of an operator command.
fn ask(host: &Host, words: &[&str]) -> anyhow::Result<serde_json::Value> {
    let address = host.wrapper_address();
    let output =
        Command::new(built("grit-wrapper")?).args(words).args(["--json", "--address", &address]).output()?;
    // 4: the outcome of the drain is not clean.
    ensure!(matches!(output.status.code(), Some(0 | 4)), "{words:?}: {output:?}");
    let text = String::from_utf8(output.stdout)?;
    Ok(serde_json::from_str(text.lines().last().unwrap_or_default())?)
}
