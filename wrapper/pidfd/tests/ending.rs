//! Processes of another parent, which end in different ways.

use std::{
    io::{BufRead, BufReader, ErrorKind, Write},
    os::fd::OwnedFd,
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use grit_pidfd::{Ending, ending};
use grit_testkit::not_covered;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// A shell that starts `script` in the background, prints its process number, and collects it when a line is read.
fn parent_of(script: &str) -> (Child, OwnedFd) {
    let text = format!("({script}) & echo $!; read line; wait");
    let mut parent =
        Command::new("sh").args(["-c", &text]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(parent.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let pid = Pid::from_raw(line.trim().parse().unwrap()).unwrap();
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    (parent, pidfd)
}

fn ending_of(script: &str) -> Option<Ending> {
    let (mut parent, pidfd) = parent_of(script);
    assert!(matches!(ending(&pidfd), Ok(Ending::NotCollected)) || is_unsupported(&pidfd));
    parent.stdin.take().unwrap().write_all(b"\n").unwrap();
    parent.wait().unwrap();
    if is_unsupported(&pidfd) {
        not_covered("the exit status of a process of another parent", "this kernel is older than Linux 6.15");
        return None;
    }
    let limit = Instant::now() + Duration::from_secs(30);
    loop {
        match ending(&pidfd).unwrap() {
            Ending::NotCollected if Instant::now() < limit => sleep(Duration::from_millis(10)),
            found => return Some(found),
        }
    }
}

fn is_unsupported(pidfd: &OwnedFd) -> bool {
    ending(pidfd).is_err_and(|error| error.kind() == ErrorKind::Unsupported)
}

#[test]
fn exit_code_of_non_child_process_is_read() {
    assert_eq!(ending_of("sleep 1; exit 42").unwrap_or(Ending::Code(42)), Ending::Code(42));
}

#[test]
fn termination_signal_of_non_child_is_read() {
    // `$$` in a subshell is the number of the outer shell, so the process is ended by a child of its own.
    let script = "sleep 1; sh -c 'kill -TERM $PPID'; sleep 60";
    assert_eq!(ending_of(script).unwrap_or(Ending::Signal(15)), Ending::Signal(15));
}

/// The parent reaps the process while the exit status is read again and again.
#[test]
fn exit_code_is_read_while_parent_reaps() {
    for number in 0..1000 {
        let mut process = Command::new("true").spawn().unwrap();
        let pid = Pid::from_child(&process);
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        let reader = std::thread::spawn(move || {
            loop {
                match ending(&pidfd) {
                    Ok(Ending::NotCollected) => {}
                    found => return found,
                }
            }
        });
        process.wait().unwrap();
        match reader.join().unwrap() {
            Ok(found) => assert_eq!(found, Ending::Code(0)),
            Err(error) => {
                // Before Linux 6.15, no process has an exit status.
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
                assert!(!is_reported(), "unknown after {number} processes");
                return;
            }
        }
    }
}

/// Whether this kernel reports the exit status of a running process as not known yet.
fn is_reported() -> bool {
    let own = pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).unwrap();
    ending(&own).is_ok()
}

#[test]
fn descriptor_that_is_not_a_pidfd_is_an_error() {
    let file = std::fs::File::open("/dev/null").unwrap();
    assert!(ending(&file).is_err());
}
