//! How a process ended.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Exit {
    /// It returned this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
    /// It ended, and its status went to another parent.
    Unknown,
}

impl Exit {
    #[must_use]
    pub fn is_success(self) -> bool {
        self == Self::Code(0)
    }

    /// The exit code that stands for this end, as a shell would give it.
    #[must_use]
    pub fn shell_code(self) -> u8 {
        match self {
            Self::Code(code) => u8::try_from(code & 0xff).unwrap_or(u8::MAX),
            Self::Signal(number) => u8::try_from(128 + (number & 0x7f)).unwrap_or(u8::MAX),
            Self::Unknown => 0,
        }
    }
}

impl fmt::Display for Exit {
    /// The words of Go's `os/exec`, which upstream's wrapper puts into `failureReason`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Code(code) => write!(f, "exit status {code}"),
            Self::Signal(number) => match name(number) {
                Some(name) => write!(f, "signal: {name}"),
                None => write!(f, "signal: {number}"),
            },
            Self::Unknown => f.write_str("ended, but its exit status went to another parent"),
        }
    }
}

fn name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_follow_the_shell() {
        assert_eq!(Exit::Code(0).shell_code(), 0);
        assert_eq!(Exit::Code(7).shell_code(), 7);
        assert_eq!(Exit::Code(255).shell_code(), 255);
        assert_eq!(Exit::Signal(9).shell_code(), 137);
        assert_eq!(Exit::Signal(15).shell_code(), 143);
    }

    #[test]
    fn words() {
        assert_eq!(Exit::Code(2).to_string(), "exit status 2");
        assert_eq!(Exit::Signal(9).to_string(), "signal: SIGKILL");
        assert_eq!(Exit::Signal(35).to_string(), "signal: 35");
    }
}
