//! Addresses in the syntax of upstream's wrapper.

use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use thiserror::Error;

/// `unix:///absolute/path` or `tcp://host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// An absolute path.
    Unix(PathBuf),
    /// `host:port`; port 0 means any free port.
    Tcp(String),
}

/// Why an address is invalid.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum AddressError {
    #[error("expected unix:///absolute/path or tcp://host:port")]
    Scheme,
    #[error("a path needs a scheme: unix:///run/wrapper.sock")]
    BarePath,
    #[error("the path of a unix address must be absolute: unix:///run/wrapper.sock")]
    Relative,
    #[error("expected a host and a port from 0 to 65535: tcp://127.0.0.1:7777")]
    HostPort,
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if let Some(path) = text.strip_prefix("unix://") {
            let path = Path::new(path);
            return match path.is_absolute() && path.file_name().is_some() {
                true => Ok(Self::Unix(path.to_owned())),
                false => Err(AddressError::Relative),
            };
        }
        if text.starts_with('/') {
            return Err(AddressError::BarePath);
        }
        let host = text.strip_prefix("tcp://").ok_or(AddressError::Scheme)?;
        match host.rsplit_once(':') {
            Some((name, port)) if !name.is_empty() && !name.contains('/') && port.parse::<u16>().is_ok() => {
                Ok(Self::Tcp(host.to_owned()))
            }
            _ => Err(AddressError::HostPort),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Tcp(host) => write!(f, "tcp://{host}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstream_addresses_are_parsed() {
        for good in ["unix:///run/w.sock", "tcp://localhost:7777", "tcp://127.0.0.1:0", "tcp://[::1]:7777"] {
            assert_eq!(good.parse::<Address>().unwrap().to_string(), good);
        }
        for (bad, why) in [
            ("unix://run/w.sock", AddressError::Relative),
            ("unix:///", AddressError::Relative),
            ("unix:run/w.sock", AddressError::Scheme),
            ("fd://", AddressError::Scheme),
            ("/run/w.sock", AddressError::BarePath),
            ("localhost:7777", AddressError::Scheme),
            ("http://localhost:7777", AddressError::Scheme),
            ("tcp://localhost", AddressError::HostPort),
            ("tcp://:7777", AddressError::HostPort),
            ("tcp://localhost:77777", AddressError::HostPort),
            ("tcp://localhost:7777/x", AddressError::HostPort),
        ] {
            assert_eq!(bad.parse::<Address>(), Err(why), "{bad}");
        }
    }
}
