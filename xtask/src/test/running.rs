//! Runs jobs in parallel, up to the width of their pools.

use std::{
    collections::VecDeque,
    io::{Read as _, Write as _},
    path::PathBuf,
    process::ExitStatus,
    sync::{
        Mutex, MutexGuard, PoisonError,
        mpsc::{self, RecvTimeoutError},
    },
    thread::{self, available_parallelism},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

use super::{
    cores,
    options::Options,
    pools::{Job, Pool, Width},
    report::{Report, Tally},
};

/// The time limit of a test.
const LIMIT: Duration = Duration::from_secs(10 * 60);
const LIMIT_NIGHTLY: Duration = Duration::from_secs(2 * 60 * 60);

/// Interval of progress lines, which have the tests' names when few are left.
const PROGRESS: Duration = Duration::from_secs(30);
const FEW: usize = 8;

/// Polling interval for exited processes: a twentieth of their age, from the first to the second. Many are polled at the same time.
const LOOK: Duration = Duration::from_millis(20);
const LOOK_LATER: Duration = Duration::from_millis(250);

/// How long a test's output may stay open after its exit. A process that a test leaves behind keeps it open.
const LEFTOVERS: Duration = Duration::from_secs(30);

/// Maximum number of runnable threads per processor for the start of another test.
const MOST_RUNNING: usize = 4;
/// Maximum wait for that, also on a machine that is always busy.
const PATIENCE: Duration = Duration::from_secs(3);

/// The result of one job.
struct Done {
    job: Job,
    outcome: anyhow::Result<Ended>,
}

/// The exit status of its process.
struct Ended {
    status: ExitStatus,
    /// Its output; `None` if it was shown immediately.
    output: Option<Vec<u8>>,
    took: Duration,
    /// The CPU time of it and of the processes for which it waited.
    cpu: Duration,
    /// Whether it was killed at the limit.
    hangs: bool,
    /// Whether processes that it started did not end with it.
    leftovers: bool,
}

/// Runs all jobs, also after failures, and shows the output of failed ones. The error has the names of the failed jobs.
pub(crate) fn run(
    jobs: Vec<Job>,
    options: &Options,
    environment: &[(&'static str, PathBuf)],
    report: &mut Report,
) -> anyhow::Result<()> {
    let width = Width::new(options)?;
    let all = jobs.len();
    let mut queues = [
        ("e2e", Pool::EndToEnd, width.e2e),
        ("other waiting tests", Pool::Others, width.others),
        ("busy tests", Pool::Burners, width.burners),
    ]
    .map(|(name, pool, width)| (name, pool, width, VecDeque::new()));
    for job in jobs {
        if let Some((.., queue)) = queues.iter_mut().find(|(_, pool, ..)| *pool == job.pool) {
            queue.push_back(job);
        }
    }
    for (name, _, width, queue) in &queues {
        println!("{} {name}, {width} at a time", queue.len());
    }
    let queues = queues.map(|(_, _, width, queue)| (Mutex::new(queue), width));
    let running = Mutex::new(Vec::<String>::new());
    thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        let running = &running;
        for (queue, width) in &queues {
            for _ in 0..*width {
                let tell = tell.clone();
                scope.spawn(move || {
                    loop {
                        let next = lock(queue).pop_front();
                        let Some(job) = next else { return };
                        if job.pool != Pool::Burners {
                            let_others_work();
                        }
                        lock(running).push(job.name.clone());
                        let outcome = run_one(&job, options, environment);
                        lock(running).retain(|name| *name != job.name);
                        // The receiver exists as long as this scope.
                        let _ = tell.send(Done { job, outcome });
                    }
                });
            }
        }
        drop(tell);
        let (mut ended, mut shown) = (0, Instant::now());
        loop {
            match told.recv_timeout(PROGRESS) {
                Ok(done) => {
                    ended += 1;
                    tell_of(&done, options, report);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if shown.elapsed() >= PROGRESS {
                shown = Instant::now();
                let running = lock(running);
                let names = if all - ended <= FEW { running.join(", ") } else { running.len().to_string() };
                println!("{ended} of {all} ended; running: {names}");
            }
        }
    });
    report.collect()?;
    match report.failures() {
        [] => Ok(()),
        failed => {
            report.print();
            bail!("{} failed: {}", failed.len(), failed.join(", "))
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits while there are many more runnable threads than processors, so that not all tests start at the same time.
fn let_others_work() {
    let most = MOST_RUNNING * available_parallelism().map_or(2, usize::from);
    let start = Instant::now();
    while start.elapsed() < PATIENCE && running().is_some_and(|running| running > most) {
        thread::sleep(LOOK);
    }
}

/// The number of runnable threads of this machine.
fn running() -> Option<usize> {
    // `0.20 0.18 0.12 1/80 11206`: the fourth field.
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split(' ').nth(3)?.split('/').next()?.parse().ok()
}

/// The CPU time that a process and its reaped descendants have used.
fn cpu_time(pid: u32) -> Option<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The fields after the program's name, which is in parentheses: utime, stime, cutime and cstime are 14 to 17 of all.
    let (_, fields) = text.rsplit_once(") ")?;
    let ticks = fields.split(' ').skip(11).take(4).map(|field| field.parse::<u64>().ok());
    // A tick of this file is 10 ms on every Linux of today.
    Some(Duration::from_millis(10 * ticks.sum::<Option<u64>>()?))
}

/// Settings of Go programs, such as Terraform: most run for less than a second, and end before a garbage collection would pay. The limit bounds
/// the memory of the others.
const GO: [(&str, &str); 2] = [("GOGC", "off"), ("GOMEMLIMIT", "256MiB")];

fn run_one(job: &Job, options: &Options, environment: &[(&'static str, PathBuf)]) -> anyhow::Result<Ended> {
    let mut command = job.binary.command();
    command.args(&job.arguments).args(options.flags()).envs(environment.iter().cloned()).envs(GO);
    if let Some(core) = &job.core {
        command.env(cores::VARIABLE, &core.program).env(cores::NAME, &core.name);
    }
    let mut reading = None;
    if !options.shows_output() {
        // One pipe for both, so that lines keep their order.
        let (mut reader, writer) = std::io::pipe().context("cannot create a pipe")?;
        command.stdout(writer.try_clone()?).stderr(writer);
        reading = Some(thread::spawn(move || {
            let mut output = Vec::new();
            let read = reader.read_to_end(&mut output);
            read.map(|_| output)
        }));
    }
    let started = Instant::now();
    let limit = if options.nightly { LIMIT_NIGHTLY } else { LIMIT };
    let mut child = command.spawn().with_context(|| format!("cannot start {}", job.binary.path.display()))?;
    // It has the write ends of the pipe.
    drop(command);
    let (mut hangs, mut cpu) = (false, Duration::ZERO);
    let status = loop {
        // A process that has exited has this file until its parent has waited for it.
        cpu = cpu_time(child.id()).unwrap_or(cpu);
        if let Some(status) = child.try_wait().context("cannot wait for the process")? {
            break status;
        }
        if !hangs && started.elapsed() > limit {
            hangs = true;
            child.kill().context("the process hangs and cannot be killed")?;
        }
        thread::sleep((started.elapsed() / 20).clamp(LOOK, LOOK_LATER));
    };
    let ended = Instant::now();
    let took = started.elapsed();
    let Some(reading) = reading else {
        return Ok(Ended { status, output: None, took, cpu, hangs, leftovers: false });
    };
    while !reading.is_finished() && ended.elapsed() < LEFTOVERS {
        thread::sleep(LOOK);
    }
    if !reading.is_finished() {
        return Ok(Ended { status, output: None, took, cpu, hangs, leftovers: true });
    }
    match reading.join() {
        Ok(output) => {
            let output = Some(output.context("cannot read the output of the process")?);
            Ok(Ended { status, output, took, cpu, hangs, leftovers: false })
        }
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Counts the job, and shows the output of a failed one.
fn tell_of(done: &Done, options: &Options, report: &mut Report) {
    let Done { job, outcome } = done;
    let (tally, failure, took, cpu) = match outcome {
        Err(error) => (Tally::default(), Some(format!("{error:#}")), Duration::ZERO, Duration::ZERO),
        Ok(ended) => {
            let (tally, failure) = ended.judge(job.tests, options);
            (tally, failure, ended.took, ended.cpu)
        }
    };
    if let Some(why) = &failure {
        println!("--- FAILED: {}, after {:.1} s: {why}", job.name, took.as_secs_f64());
        if let Ok(Ended { output: Some(output), .. }) = outcome {
            // A closed terminal must not end the run.
            let _ = std::io::stdout().lock().write_all(output);
        }
        println!("---");
    }
    report.ended(&job.name, tally, failure.is_some(), took, cpu);
}

impl Ended {
    /// The counts of `tests`, and the reason if the process failed.
    fn judge(&self, tests: usize, options: &Options) -> (Tally, Option<String>) {
        if self.hangs {
            return (Tally::default(), Some("the process did not exit in time and was killed".to_owned()));
        }
        if self.leftovers {
            let why = format!(
                "child processes still have its output open {} s after its exit",
                LEFTOVERS.as_secs()
            );
            return (Tally::default(), Some(why));
        }
        if options.shows_output() && self.status.success() {
            return (Tally { passed: tests, ..Tally::default() }, None);
        }
        let output = self.output.as_deref().map(String::from_utf8_lossy);
        match output.and_then(|output| Tally::parse(&output)) {
            Some(tally) if self.status.success() && tally.passed + tally.ignored == tests => (tally, None),
            Some(tally) => (tally, Some(format!("{}, {} of {tests} passed", self.status, tally.passed))),
            None => (Tally::default(), Some(format!("{}, no result", self.status))),
        }
    }
}
