//! The exec barrier: a child that waits until the wrapper has saved its identity.
//!
//! If the wrapper were killed between starting a process and saving its PID, the next wrapper would start a second runner. So the child
//! first runs this binary as a barrier, which waits at a socket on its stdin. After the wrapper has saved the identity, it sends one byte,
//! and the barrier executes the runner, which keeps PID and start time. If the wrapper exits before, the barrier reads the end of the
//! stream and exits as well. If exec succeeds, the kernel closes the barrier's end of the socket, which the wrapper detects; if exec
//! fails, the barrier sends the error number.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Read, Write},
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt},
    },
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use rustix::io::fcntl_dupfd_cloexec;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use super::{command_line::CommandLine, identity::Program};

/// The first argument that turns this binary into a barrier; not for users.
pub const ARGUMENT: &str = "__exec-barrier";

/// A slower exec hangs in a file system that does not respond.
pub(crate) const EXEC_LIMIT: Duration = Duration::from_secs(20);

/// The wrapper's end of a barrier.
#[derive(Debug)]
pub(super) struct Barrier(UnixStream);

/// The command that starts a barrier for `command` with this program, and the wrapper's end of it.
pub(super) fn command(command: &CommandLine, program: &Path) -> io::Result<(Command, Barrier)> {
    let (ours, theirs) = UnixStream::pair()?;
    // This binary, even if an upgrade has replaced its file.
    let mut barrier = Command::new("/proc/self/exe");
    barrier.arg0("grit-wrapper").arg(ARGUMENT).arg(program).arg(&command.name).args(&command.args);
    barrier.stdin(Stdio::from(OwnedFd::from(theirs)));
    Ok((barrier, Barrier(ours)))
}

impl Barrier {
    /// Lets the child execute the runner, and waits until it has done so. A slow file system delays the caller only.
    pub(super) async fn open(self) -> io::Result<()> {
        self.0.set_nonblocking(true)?;
        let mut barrier = tokio::net::UnixStream::from_std(self.0)?;
        barrier.write_all(&[1]).await?;
        let mut answer = Vec::new();
        let answered = timeout(EXEC_LIMIT, barrier.read_to_end(&mut answer)).await;
        answered
            .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "timed out executing the command"))??;
        match <[u8; 4]>::try_from(answer.as_slice()) {
            Err(_) if answer.is_empty() => Ok(()),
            Err(_) => Err(io::ErrorKind::InvalidData.into()),
            Ok(number) => Err(io::Error::from_raw_os_error(i32::from_ne_bytes(number))),
        }
    }
}

/// The program of the process with this PID, if the process is a barrier, which has not executed the runner.
pub(super) fn program(pid: u32) -> Option<Program> {
    let is_barrier = || {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).nth(1) == Some(ARGUMENT.as_bytes())
    };
    // Checked again: it may have executed the runner meanwhile.
    is_barrier().then(|| Program::of(pid).ok())?.filter(|_| is_barrier())
}

/// Main function of the barrier; `words` are the program, its name, and its arguments. It returns an exit code if the runner is not
/// executed.
pub fn main(words: impl Iterator<Item = OsString>) -> u8 {
    match wait_and_exec(words) {
        Ok(()) => 0,
        Err(_) => 126,
    }
}

/// `Ok` if the wrapper has exited, so that no runner may be started.
fn wait_and_exec(mut words: impl Iterator<Item = OsString>) -> io::Result<()> {
    let (Some(program), Some(name)) = (words.next(), words.next()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    // A duplicate that exec closes; stdin itself becomes the runner's empty stdin.
    let socket = fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let nothing = File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nothing)?;
    let mut socket = UnixStream::from(socket);
    if socket.read(&mut [0])? == 0 {
        return Ok(());
    }
    let error = Command::new(program).arg0(name).args(words).exec();
    let number = error.raw_os_error().unwrap_or_default();
    socket.write_all(&number.to_ne_bytes())?;
    Err(error)
}

#[cfg(test)]
mod tests {
    use std::net::Shutdown;

    use tokio::time::{Instant, sleep};

    use super::*;

    // The clock is paused: it advances to the next timer when no other task can run.

    #[tokio::test(start_paused = true)]
    async fn other_tasks_run_while_exec_is_pending() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        // Exec takes a second and closes the socket when it succeeds.
        let exec = async {
            sleep(Duration::from_secs(1)).await;
            theirs.read_exact(&mut [0]).unwrap();
            // Not only closed: a child that another test forks at this moment has the socket open until its own exec.
            theirs.shutdown(Shutdown::Both).unwrap();
        };
        let (opened, ()) = tokio::join!(Barrier(ours).open(), exec);
        opened.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn hanging_exec_times_out() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let begin = Instant::now();
        let error = Barrier(ours).open().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let took = begin.elapsed();
        assert!(took >= EXEC_LIMIT && took < 2 * EXEC_LIMIT, "{took:?}");
    }
}
