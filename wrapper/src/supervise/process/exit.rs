//! Exit of a process.

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Exit {
    Code(i32),
    /// Number of the signal that terminated the process.
    Signal(i32),
    /// The process exited, but its status is unknown, because this wrapper is not its parent.
    Unknown,
}

impl Exit {
    pub fn is_success(self) -> bool {
        self == Self::Code(0)
    }

    /// The exit code as a shell reports it.
    pub fn shell_code(self) -> u8 {
        match self {
            Self::Code(code) => u8::try_from(code & 0xff).unwrap_or(u8::MAX),
            Self::Signal(number) => u8::try_from(128 + (number & 0x7f)).unwrap_or(u8::MAX),
            // Unknown is not a success; 125 is a failure of the wrapper itself, as in `timeout`.
            Self::Unknown => 125,
        }
    }
}

impl fmt::Display for Exit {
    /// The strings of Go's `os/exec`, which upstream's wrapper puts into `failureReason`: clients may compare them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Code(code) => write!(f, "exit status {code}"),
            Self::Signal(number) => match name(number) {
                Some(name) => write!(f, "signal: {name}"),
                None => write!(f, "signal: signal {number}"),
            },
            Self::Unknown => f.write_str(
                "exited; the exit status is unknown, because this wrapper is not the parent of the process",
            ),
        }
    }
}

/// Signal names as in Go.
fn name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        1 => "hangup",
        2 => "interrupt",
        3 => "quit",
        4 => "illegal instruction",
        6 => "aborted",
        7 => "bus error",
        8 => "floating point exception",
        9 => "killed",
        11 => "segmentation fault",
        13 => "broken pipe",
        14 => "alarm clock",
        15 => "terminated",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_follow_the_shell() {
        assert_eq!(Exit::Code(0).shell_code(), 0);
        assert_eq!(Exit::Code(7).shell_code(), 7);
        assert_eq!(Exit::Code(255).shell_code(), 255);
        assert_eq!(Exit::Signal(9).shell_code(), 137);
        assert_eq!(Exit::Signal(15).shell_code(), 143);
        assert_ne!(Exit::Unknown.shell_code(), 0, "unknown is no success");
    }

    #[test]
    fn exit_text_equals_that_of_go() {
        assert_eq!(Exit::Code(2).to_string(), "exit status 2");
        assert_eq!(Exit::Signal(9).to_string(), "signal: killed");
        assert_eq!(Exit::Signal(35).to_string(), "signal: signal 35");
    }
}
