//! The process at the other end of a TCP connection, from the kernel's tables.
//!
//! A port of this host is free for the process that binds it first, which can be a CI job. A response comes from the runner only if the runner
//! has a descriptor of the socket at the other end of the connection. A job has other descriptors, also if it has the same name, command line and
//! environment. A job can have the runner's descriptors only if it can control the runner, as a debugger does.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, ErrorKind},
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use super::{list, stat::Process};
use crate::supervise::{blocking, lock_wait::LockOwner};

/// The tables need milliseconds, also with thousands of sockets.
const LIMIT: Duration = Duration::from_secs(2);

/// The process at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// The supervised process.
    Runner,
    Other(LockOwner),
    /// It has closed the connection.
    Closed,
    /// The kernel does not show the runner's descriptors to this user.
    Unreadable,
}

/// The process at the other end of the connection between the addresses `local` and `remote`. That process must have accepted the connection:
/// before that, the socket belongs to no process. Call this again for another connection, or if another process is supervised.
pub(crate) async fn peer(supervised: u32, local: SocketAddr, remote: SocketAddr) -> io::Result<Peer> {
    blocking::run("connection", LIMIT, move || {
        find(supervised, local, remote).or_else(|error| match error.kind() {
            ErrorKind::PermissionDenied => Ok(Peer::Unreadable),
            _ => Err(error),
        })
    })
    .await
}

fn find(supervised: u32, local: SocketAddr, remote: SocketAddr) -> io::Result<Peer> {
    let mut inode = inode("/proc/self/net", local, remote)?;
    if inode.is_none() && !remote.ip().to_canonical().is_loopback() {
        // An address of the runner's network namespace.
        inode = self::inode(&format!("/proc/{supervised}/net"), local, remote)?;
    }
    // 0 after the process has closed the socket.
    let Some(inode) = inode.filter(|inode| inode != "0") else { return Ok(Peer::Closed) };
    let socket = format!("socket:[{inode}]");
    if has_descriptor(supervised, &socket)? {
        return Ok(Peer::Runner);
    }
    // A process of another user may be unreadable.
    let is_holder = |process: &Process| has_descriptor(process.pid, &socket).unwrap_or(false);
    Ok(Peer::Other(LockOwner::new(list::all().into_iter().find(is_holder).map(|process| process.pid))))
}

/// The inode of the socket at the other end, from the tables of a network namespace.
fn inode(tables: &str, local: SocketAddr, remote: SocketAddr) -> io::Result<Option<String>> {
    // That socket has the two addresses in this order. If it accepts both families, it is in the table of IPv6.
    for (table, ends) in [("tcp", ipv4(remote).zip(ipv4(local))), ("tcp6", Some((ipv6(remote), ipv6(local))))]
    {
        let Some((first, second)) = ends else { continue };
        let file = match File::open(format!("{tables}/{table}")) {
            // Without IPv6.
            Err(error) if table == "tcp6" && error.kind() == ErrorKind::NotFound => continue,
            file => file?,
        };
        for line in BufReader::new(file).lines() {
            let line = line?;
            let mut fields = line.split_ascii_whitespace().skip(1);
            if fields.next() == Some(&first) && fields.next() == Some(&second) {
                return Ok(fields.nth(6).map(str::to_owned));
            }
        }
    }
    Ok(None)
}

/// The address as in the table of IPv4.
fn ipv4(address: SocketAddr) -> Option<String> {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => Some(notation(&ip.octets(), address.port())),
        IpAddr::V6(_) => None,
    }
}

/// The address as in the table of IPv6.
fn ipv6(address: SocketAddr) -> String {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    notation(&ip.octets(), address.port())
}

/// The kernel writes each four bytes as a number of this machine.
fn notation(ip: &[u8], port: u16) -> String {
    let (words, _) = ip.as_chunks();
    let words = words.iter().map(|word| format!("{:08X}", u32::from_ne_bytes(*word)));
    format!("{}:{port:04X}", words.collect::<String>())
}

/// Whether the process has a descriptor of this socket. Reads only the links, and opens no file of the process.
fn has_descriptor(pid: u32, socket: &str) -> io::Result<bool> {
    let is_gone = |error: &io::Error| error.kind() == ErrorKind::NotFound;
    let entries = match fs::read_dir(format!("/proc/{pid}/fd")) {
        Err(error) if is_gone(&error) => return Ok(false),
        entries => entries?,
    };
    for entry in entries {
        match entry.and_then(|entry| fs::read_link(entry.path())) {
            Err(error) if is_gone(&error) => {}
            link => {
                if link?.as_os_str() == socket {
                    return Ok(true);
                }
            }
        }
    }
    Ok(false)
}
