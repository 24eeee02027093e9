//! The gate: a child that waits until the wrapper has written down that it exists.
//!
//! Between making a process and writing its number down the wrapper may be killed, and the next one would start a second runner. So the
//! child is first this same program as a gate, which waits at a socket on its stdin. When the wrapper has written its identity down, it
//! sends one byte; the gate then becomes the runner by exec, which keeps number and start time. When the wrapper dies before, the
//! gate reads the end of the socket and goes as well. When exec succeeds, its end of the socket is closed by the kernel, which tells the
//! wrapper; when it fails, it sends the error's number.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read, Write},
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt},
    },
    process::{Command, Stdio},
    time::Duration,
};

use rustix::io::fcntl_dupfd_cloexec;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use super::command_line::CommandLine;

/// The first argument that makes this program a gate; not for people.
pub const ARGUMENT: &str = "__gate";

/// An exec that takes longer hangs on a dead file system.
const EXEC_LIMIT: Duration = Duration::from_secs(30);

/// The wrapper's end of a gate.
#[derive(Debug)]
pub(super) struct Gate(UnixStream);

/// The command that makes a gate for `command`, and the wrapper's end of it.
pub(super) fn command(command: &CommandLine) -> io::Result<(Command, Gate)> {
    let (ours, theirs) = UnixStream::pair()?;
    // Our own file, even when it was replaced by an upgrade since.
    let mut gate = Command::new("/proc/self/exe");
    gate.arg0("grit-wrapper").arg(ARGUMENT).arg(&command.program).arg(&command.name).args(&command.args);
    gate.stdin(Stdio::from(OwnedFd::from(theirs)));
    Ok((gate, Gate(ours)))
}

impl Gate {
    /// Lets the child become the runner, and waits until it is. Only the caller waits, for as long as the runner's file system takes.
    pub(super) async fn open(self) -> io::Result<()> {
        self.0.set_nonblocking(true)?;
        let mut gate = tokio::net::UnixStream::from_std(self.0)?;
        gate.write_all(&[1]).await?;
        let mut answer = Vec::new();
        let answered = timeout(EXEC_LIMIT, gate.read_to_end(&mut answer)).await;
        answered
            .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "timed out executing the command"))??;
        match <[u8; 4]>::try_from(answer.as_slice()) {
            Err(_) if answer.is_empty() => Ok(()),
            Err(_) => Err(io::ErrorKind::InvalidData.into()),
            Ok(number) => Err(io::Error::from_raw_os_error(i32::from_ne_bytes(number))),
        }
    }
}

/// What the gate does; `words` are the program, its name, and its arguments. Returns when it does not become the runner, with the
/// code to exit with.
#[must_use]
pub fn main(words: impl Iterator<Item = OsString>) -> u8 {
    match wait_and_exec(words) {
        Ok(()) => 0,
        Err(_) => 126,
    }
}

/// `Ok` when the wrapper has gone, and no runner is wanted.
fn wait_and_exec(mut words: impl Iterator<Item = OsString>) -> io::Result<()> {
    let (Some(program), Some(name)) = (words.next(), words.next()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    // A copy that exec closes; stdin itself becomes the runner's, which is empty.
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
    use tokio::time::{Instant, sleep};

    use super::*;

    // The clock is paused: it moves to the next limit as soon as nothing else happens.

    #[tokio::test(start_paused = true)]
    async fn other_tasks_run_while_exec_is_pending() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        // Exec takes a second, and closes the socket when it has succeeded.
        let exec = async {
            sleep(Duration::from_secs(1)).await;
            theirs.read_exact(&mut [0]).unwrap();
            drop(theirs);
        };
        let (opened, ()) = tokio::join!(Gate(ours).open(), exec);
        opened.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn hanging_exec_times_out() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let begin = Instant::now();
        let error = Gate(ours).open().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let took = begin.elapsed();
        assert!(took >= EXEC_LIMIT && took < 2 * EXEC_LIMIT, "{took:?}");
    }
}
