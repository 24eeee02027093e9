//! A child that misbehaves on purpose, for the wrapper's tests. Each flag is one bad habit.

use std::{
    fs::File,
    io::{Read, Write},
    os::unix::{ffi::OsStrExt, process::CommandExt},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::Parser;
use rustix::process::Pid;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, UnixStream},
    signal::unix::{Signal, SignalKind, signal},
    time::sleep,
};

#[derive(Debug, Parser)]
struct Habits {
    /// Write a line here for everything that happens: `ready`, and the name of each signal.
    #[arg(long)]
    record: Option<PathBuf>,
    /// Exit when this process, the test, has exited, so that no process survives a killed test. All processes that have the directory of the
    /// record in their arguments, such as the wrapper, belong to the test, and are killed.
    #[arg(long)]
    lives_with: Option<i32>,
    /// Install the handlers only after this many milliseconds.
    #[arg(long, default_value_t = 0)]
    handlers_after: u64,
    /// Exit this many milliseconds after SIGQUIT, as with a running job. Without it SIGQUIT ends the child immediately.
    #[arg(long, default_value_t = 0)]
    jobs_take: u64,
    /// After SIGQUIT, exit only when this file exists.
    #[arg(long)]
    jobs_until: Option<PathBuf>,
    /// Do not end on SIGQUIT.
    #[arg(long)]
    ignore_quit: bool,
    /// Do not end on SIGTERM.
    #[arg(long)]
    ignore_term: bool,
    /// Leave a process behind in the group that ignores all signals it can, and write its PID here.
    #[arg(long)]
    grandchild: Option<PathBuf>,
    /// Start jobs as GitLab Runner does, each in a separate process group: one that ignores all signals it can, one that has also left its
    /// parent and its session, and one with an empty environment. They keep running after the exit of the child.
    #[arg(long)]
    stubborn_jobs: bool,
    /// Start processes that exit immediately, and never wait for them, so that they are zombies.
    #[arg(long)]
    zombies: bool,
    /// Exit this many milliseconds after SIGTERM, as GitLab Runner does after its `shutdown_timeout`.
    #[arg(long, default_value_t = 0)]
    term_takes: u64,
    /// Write so many bytes of a known pattern to stdout.
    #[arg(long)]
    flood: Option<usize>,
    /// End by itself after so many milliseconds.
    #[arg(long)]
    exit_after: Option<u64>,
    /// The code to end with, whatever the cause.
    #[arg(long, default_value_t = 0)]
    code: u8,
    /// Listen on `LISTEN_ADDRESS`, as GitLab Runner does, and forward each connection to this socket of the test.
    #[arg(long, env = "HTTP_BACKEND", requires = "listen_address")]
    http_backend: Option<PathBuf>,
    #[arg(long, env = "LISTEN_ADDRESS")]
    listen_address: Option<String>,
    /// Read stdin to its end, and write how many bytes there were into the record.
    #[arg(long)]
    read_stdin: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<ExitCode> {
    let habits = Habits::parse();
    let mut record = match &habits.record {
        Some(path) => Some(File::options().create(true).append(true).open(path)?),
        None => None,
    };
    let mut note = |text: &str| match &mut record {
        // With one system call: a test may kill this process as soon as the text is there.
        Some(file) => file.write_all(format!("{text}\n").as_bytes()),
        None => Ok(()),
    };

    if let Some(test) = habits.lives_with {
        let folder = habits.record.as_deref().and_then(Path::parent).map(Path::to_owned);
        std::thread::spawn(move || end_with(test, folder.as_deref()));
    }
    if let (Some(address), Some(backend)) = (&habits.listen_address, &habits.http_backend) {
        tokio::spawn(forward(TcpListener::bind(address).await?, backend.clone()));
    }
    if let Some(path) = &habits.grandchild {
        let script = "trap '' QUIT TERM HUP INT; while kill -0 $0 2>/dev/null; do sleep 1; done";
        // It goes with the test as well; without one, with the first process, and so never.
        let test = habits.lives_with.unwrap_or(1).to_string();
        let child = std::process::Command::new("sh").args(["-c", script, &test]).spawn()?;
        std::fs::write(path, child.id().to_string())?;
    }
    if habits.stubborn_jobs {
        start_stubborn_jobs(&habits)?;
    }
    if habits.zombies {
        // In the group of this process, and as the leader of another group.
        std::process::Command::new("true").spawn()?;
        std::process::Command::new("true").process_group(0).spawn()?;
    }
    if let Some(bytes) = habits.flood {
        let pattern: Vec<u8> = (0..bytes).map(|at| u8::try_from(at % 251).unwrap_or_default()).collect();
        std::io::stdout().lock().write_all(&pattern)?;
    }
    if habits.read_stdin {
        let mut bytes = Vec::new();
        std::io::stdin().read_to_end(&mut bytes)?;
        note(&format!("stdin {}", bytes.len()))?;
    }

    sleep(Duration::from_millis(habits.handlers_after)).await;
    let mut quit = signal(SignalKind::quit())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    note("ready")?;
    let mut finish = habits.exit_after.map(Duration::from_millis);
    let mut held = None;
    loop {
        tokio::select! {
            () = after(finish) => return Ok(ExitCode::from(habits.code)),
            () = exists(held) => return Ok(ExitCode::from(habits.code)),
            () = seen(&mut hangup) => note("HUP")?,
            () = seen(&mut quit) => {
                note("QUIT")?;
                if habits.jobs_until.is_some() {
                    held = habits.jobs_until.as_deref();
                } else if !habits.ignore_quit {
                    finish = Some(Duration::from_millis(habits.jobs_take));
                }
            }
            () = seen(&mut terminate) => {
                note("TERM")?;
                if !habits.ignore_term {
                    finish = Some(Duration::from_millis(habits.term_takes));
                }
            }
        }
    }
}

async fn forward(listener: TcpListener, backend: PathBuf) -> std::io::Result<()> {
    loop {
        let (mut client, _) = listener.accept().await?;
        let mut server = UnixStream::connect(&backend).await?;
        tokio::spawn(async move { copy_bidirectional(&mut client, &mut server).await });
    }
}

fn start_stubborn_jobs(habits: &Habits) -> std::io::Result<()> {
    // It exits with the test as well, and has the test's directory in its arguments.
    let script = "trap '' QUIT TERM HUP INT; while kill -0 $0 2>/dev/null; do sleep 1; done";
    let test = habits.lives_with.unwrap_or(1).to_string();
    let folder = habits.record.as_deref().and_then(Path::parent).unwrap_or(Path::new("/"));
    let job = |program: &str, words: &[&str]| {
        let mut command = std::process::Command::new(program);
        command.args(words).args(["/bin/sh", "-c", script, &test]).arg(folder).process_group(0);
        command
    };
    job("/usr/bin/env", &[]).spawn()?;
    job("/usr/bin/env", &["-i"]).env_clear().spawn()?;
    // The shell in between exits immediately.
    let mut gone = job("/bin/sh", &["-c", "setsid \"$@\" &", "sh"]).spawn()?;
    gone.wait()?;
    Ok(())
}

/// Ends this process as soon as `test` has exited, and all processes that have `folder` in their arguments.
fn end_with(test: i32, folder: Option<&Path>) {
    // The test may belong to another user.
    let lives = |test| rustix::process::test_kill_process(test) != Err(rustix::io::Errno::SRCH);
    while Pid::from_raw(test).is_some_and(lives) {
        std::thread::sleep(Duration::from_millis(200));
    }
    for process in folder.map(processes_of).unwrap_or_default() {
        let _gone = rustix::process::kill_process(process, rustix::process::Signal::KILL);
    }
    std::process::exit(1);
}

/// The other processes that have this directory, whose name is unique, in their arguments.
fn processes_of(folder: &Path) -> Vec<Pid> {
    let folder = folder.as_os_str().as_bytes();
    let is_of = |pid: &Pid| {
        let command = std::fs::read(format!("/proc/{}/cmdline", pid.as_raw_pid())).unwrap_or_default();
        command.windows(folder.len().max(1)).any(|window| window == folder)
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten();
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let me = i32::try_from(std::process::id()).ok();
    numbers.filter(|number| Some(*number) != me).filter_map(Pid::from_raw).filter(is_of).collect()
}

async fn after(time: Option<Duration>) {
    match time {
        Some(time) => sleep(time).await,
        None => std::future::pending().await,
    }
}

async fn exists(file: Option<&Path>) {
    let Some(file) = file else { return std::future::pending().await };
    while !file.exists() {
        sleep(Duration::from_millis(10)).await;
    }
}

async fn seen(signal: &mut Signal) {
    if signal.recv().await.is_none() {
        std::future::pending::<()>().await;
    }
}
