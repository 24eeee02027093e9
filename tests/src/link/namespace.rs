//! A network namespace at the end of a virtual cable.

use std::{
    fs::File,
    net::Ipv4Addr,
    os::fd::AsFd as _,
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A network of its own: one cable to this machine, and a loopback. Servers in it share everything else with this machine, sockets in
/// its file system included. Removed with its value; what runs in it is to be ended before.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    address: Ipv4Addr,
}

impl Namespace {
    /// Makes one; the error says what is missing for that, which is `ip` of iproute2 or the right to use it.
    pub fn new() -> anyhow::Result<Self> {
        let [a, b, c, d, ..] = uuid::Uuid::new_v4().into_bytes();
        // Of the range that is set aside for tests of networks, so that no real host is hidden. Four addresses for each cable.
        let network = [198, 18 | (a & 1), b, c & 0b1111_1100];
        let [ours, theirs] = [1, 2].map(|host| {
            let [first, second, third, fourth] = network;
            Ipv4Addr::new(first, second, third, fourth | host)
        });
        let id = format!("grit{a:02x}{b:02x}{c:02x}{d:02x}");
        let (outer, inner) = (format!("{id}o"), format!("{id}i"));
        ip(&["netns", "add", &id])?;
        let made = Self { name: id, address: theirs };
        let name = made.name.as_str();
        ip(&["link", "add", &outer, "type", "veth", "peer", "name", &inner, "netns", name])?;
        ip(&["address", "add", &format!("{ours}/30"), "dev", &outer])?;
        ip(&["link", "set", &outer, "up"])?;
        ip(&["-netns", name, "address", "add", &format!("{theirs}/30"), "dev", &inner])?;
        ip(&["-netns", name, "link", "set", "lo", "up"])?;
        made.restore()?;
        Ok(made)
    }

    /// Its address at the other end of the cable.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Runs a closure in the namespace, and with it the processes that it starts.
    pub fn run<T: Send>(&self, inside: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        let path = format!("/run/netns/{}", self.name);
        let namespace = File::open(&path).with_context(|| format!("open {path}"))?;
        // Only the thread that asks for it is moved, so it is one that ends with the closure.
        let moved = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
                Ok::<_, rustix::io::Errno>(inside())
            });
            thread.join()
        });
        match moved {
            Ok(done) => done.with_context(|| format!("move into {path}")),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Pulls the cable at the far end: packets to the namespace are lost.
    pub fn cut(&self) -> anyhow::Result<()> {
        self.cable("down")
    }

    /// Puts the cable back.
    pub fn restore(&self) -> anyhow::Result<()> {
        self.cable("up")
    }

    fn cable(&self, state: &str) -> anyhow::Result<()> {
        ip(&["-netns", &self.name, "link", "set", &format!("{}i", self.name), state])
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // The cable goes with it. What cannot be removed has an id of its own, and is in nobody's way.
        let _ = ip(&["netns", "delete", &self.name]);
    }
}

fn ip(arguments: &[&str]) -> anyhow::Result<()> {
    let output = Command::new("ip")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .context("start `ip`, which the package iproute2 has")?;
    if !output.status.success() {
        bail!("ip {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
