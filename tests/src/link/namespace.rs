//! A network namespace at the end of a virtual Ethernet cable.

use std::{
    fs::File,
    net::Ipv4Addr,
    os::fd::AsFd as _,
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A separate network: one cable to this machine, and a loopback. Servers in it share everything else with this machine, including
/// unix sockets. Dropping it removes it; its processes must end before.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    address: Ipv4Addr,
}

impl Namespace {
    /// Creates a namespace. The error names what is missing: `ip` of iproute2 or the permission to use it.
    pub fn new() -> anyhow::Result<Self> {
        let [a, b, c, d, ..] = uuid::Uuid::new_v4().into_bytes();
        // From the range reserved for network tests, so that no real host is hidden. Four addresses for each cable.
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
        // Only the calling thread is moved, so it is a thread that ends with the closure.
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

    /// Sets the far end of the cable down: packets to the namespace are lost.
    pub fn cut(&self) -> anyhow::Result<()> {
        self.cable("down")
    }

    /// Sets the cable up again.
    pub fn restore(&self) -> anyhow::Result<()> {
        self.cable("up")
    }

    fn cable(&self, state: &str) -> anyhow::Result<()> {
        ip(&["-netns", &self.name, "link", "set", &format!("{}i", self.name), state])
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // The cable is removed with it. Names are unique, so leftovers do not disturb other tests.
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
