//! Connects stdin and stdout to a socket, as `nc` does, and injects faults on request: the stand-in for tools
//! in `proxy_command` and `ssh_command`.
//!
//!     carry [--stderr TEXT] [--stdout TEXT] [--flood BYTES] [--helper FILE] [--sleep SECONDS] [--exit CODE] [tcp HOST PORT | unix PATH]

use anyhow::{Context as _, bail};
use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    os::unix::net::UnixStream,
    process::{Command, ExitCode},
    thread,
    time::Duration,
};

/// The program `carry`.
pub fn main() -> ExitCode {
    run().unwrap_or_else(|error| {
        // As `nc`, which SIGPIPE ends.
        let is_gone =
            error.downcast_ref().is_some_and(|error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe);
        if !is_gone {
            // The reader may be gone.
            let _ = writeln!(io::stderr(), "Error: {error:?}");
        }
        ExitCode::FAILURE
    })
}

fn run() -> anyhow::Result<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().context("an argument is missing");
    while let Ok(argument) = next() {
        match argument.as_str() {
            "--stderr" => io::stderr().write_all(next()?.as_bytes())?,
            "--stdout" => {
                io::stdout().write_all(next()?.as_bytes())?;
                io::stdout().flush()?;
            }
            "--flood" => {
                let bytes: usize = next()?.parse()?;
                for _ in 0..bytes / 64 {
                    io::stderr().write_all(&[b'.'; 64])?;
                }
            }
            // A process that outlives its parent, unless the whole group is killed. It writes its PID to a file.
            "--helper" => {
                let helper = Command::new("sleep").arg("600").spawn()?;
                std::fs::write(next()?, helper.id().to_string())?;
            }
            "--sleep" => thread::sleep(Duration::from_secs(next()?.parse()?)),
            "--exit" => return Ok(ExitCode::from(next()?.parse::<u8>()?)),
            "tcp" => {
                let socket = TcpStream::connect((next()?.as_str(), next()?.parse()?)).context("connect")?;
                socket.set_nodelay(true)?;
                let (writer, closer) = (socket.try_clone()?, socket.try_clone()?);
                return carry(socket, writer, move || closer.shutdown(Shutdown::Write));
            }
            "unix" => {
                let socket = UnixStream::connect(next()?).context("connect")?;
                let (writer, closer) = (socket.try_clone()?, socket.try_clone()?);
                return carry(socket, writer, move || closer.shutdown(Shutdown::Write));
            }
            other => bail!("{other:?} is unknown"),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Copies in both directions until the socket is closed.
fn carry(
    mut reader: impl Read,
    mut writer: impl Write + Send + 'static,
    close: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> anyhow::Result<ExitCode> {
    thread::spawn(move || copy(&mut io::stdin(), &mut writer).and_then(|()| close()));
    copy(&mut reader, &mut io::stdout())?;
    Ok(ExitCode::SUCCESS)
}

/// Like `io::copy`, but unbuffered.
fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut buffer = [0; 16 * 1024];
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok(()),
            count => {
                to.write_all(buffer.get(..count).unwrap_or_default())?;
                to.flush()?;
            }
        }
    }
}
