//! Connects to a unix socket and prints the result: `connect: <error>`, or `connected` and then `closed` or `still open`.
//!
//! A separate program, so that it can run as another user.

use std::{env::args_os, io::Read as _, os::unix::net::UnixStream, process::ExitCode, time::Duration};

#[expect(clippy::print_stdout, reason = "a program for tests that read it")]
fn main() -> ExitCode {
    let Some(path) = args_os().nth(1) else {
        println!("usage: socket-knock PATH");
        return ExitCode::FAILURE;
    };
    let mut stream = match UnixStream::connect(path) {
        Ok(stream) => stream,
        Err(error) => {
            println!("connect: {:?}", error.kind());
            return ExitCode::SUCCESS;
        }
    };
    println!("connected");
    // A server that accepts the client waits for its first bytes; one that rejects it closes the connection immediately.
    let limited = stream.set_read_timeout(Some(Duration::from_secs(2)));
    let closed = limited.is_ok() && matches!(stream.read(&mut [0]), Ok(0));
    println!("{}", if closed { "closed" } else { "still open" });
    ExitCode::SUCCESS
}
