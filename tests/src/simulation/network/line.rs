//! The ways from one provider process to the wrappers: what the process opens its connections with, in place of SSH.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::future::{BoxFuture, FutureExt as _};
use grit_provider::testing::{
    client::{ClientError, Snapshot},
    simulation::Connect,
    transport::{Cause, ChannelRefusal, ConnectionMethod, Phase, Route, Target, TransportError, Tunnel},
};
use tokio::time::{Instant, sleep};

use super::{
    Failure, Fault, errors, proxy,
    wire::{End, Monitor, Wire, ends},
};
use crate::simulation::{
    host::Host,
    origin::{Origin, Shown},
    world::{Happening, Inner, World},
};

/// The default of `connect_timeout`, which is the limit of a connection that no one answers.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
const CALL_LIMIT: Duration = Duration::from_secs(30);
/// In one process: the health check looks at an old runner, and requests its drain later, and then the drain follows.
const LOGINS: u32 = 3;

/// All ways of one process.
pub(in crate::simulation) struct Lines {
    world: Arc<World>,
    origin: Arc<Origin>,
    /// By address.
    known: Mutex<BTreeMap<String, Known>>,
}

/// What the process knows of one address.
#[derive(Debug, Default)]
struct Known {
    /// The instance that it has reached last.
    instance: Option<String>,
    /// What the last failure to connect shows: whether no host responds, `None` if it was not attempted, and what it shows of the host.
    failed: Option<(Option<bool>, Shown)>,
    /// The refused logins.
    refused: u32,
}

/// Where an attempt to connect leads.
enum Leads {
    /// To a wrapper, over this connection.
    To(Arc<Wire>),
    Fails(Failure),
    /// Nothing answers, until the limit.
    Unanswered,
    /// The socket of the wrapper does not exist.
    NoSocket,
}

impl Lines {
    pub(in crate::simulation) fn new(world: Arc<World>, origin: Arc<Origin>) -> Self {
        Self { world, origin, known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leads(&self, address: &str) -> Leads {
        let mut world = self.world.now();
        let fault = world.fault_until(address);
        match fault {
            Some((Fault::Silent, _)) => return Leads::Unanswered,
            Some((Fault::Fails(failure), end)) => {
                let refused = self.known().entry(address.to_owned()).or_default().refuses(failure);
                if failure.is_final() {
                    world.log(address, format!("{failure:?}, {refused} times in this process"));
                }
                if refused > LOGINS {
                    let what = format!("a rejected login or host key is tried again ({failure:?})");
                    world.violation(address, what);
                }
                if !failure.is_response() {
                    return Leads::Fails(failure);
                }
                let wire = self.wire(&mut world, address, None);
                // With the fault, the proxy goes.
                world.at("", end, Happening::ConnectionLost { number: wire.number });
                return Leads::To(wire);
            }
            _ => {}
        }
        let Some(instance) = world.addresses.get(address).cloned() else { return Leads::Unanswered };
        match world.hosts.get(&instance) {
            Some(host) if host.is_off() => Leads::Unanswered,
            Some(Host { wrapper: Some(wrapper), .. }) => {
                let number = wrapper.number();
                self.known().entry(address.to_owned()).or_default().instance = Some(instance.clone());
                Leads::To(self.wire(&mut world, address, Some((instance, number))))
            }
            Some(_) => Leads::NoSocket,
            None => Leads::Unanswered,
        }
    }

    fn wire(&self, world: &mut Inner, address: &str, reaches: Option<(String, u32)>) -> Arc<Wire> {
        let number = world.next_connection();
        let is_after_half_open = world.fault(address) == Some(Fault::HalfOpen);
        let (line, origin) = ((address.to_owned(), route(address)), Arc::clone(&self.origin));
        let wire = Wire::new(Arc::clone(&self.world), number, line, reaches, origin, is_after_half_open);
        world.connections.insert(number, Arc::clone(&wire));
        wire
    }

    async fn open(&self, address: &str, deadline: Option<Instant>) -> Result<Tunnel, TransportError> {
        let begin = Instant::now();
        let left =
            |limit: Duration| deadline.map_or(limit, |end| limit.min(end.saturating_duration_since(begin)));
        let latency = self.world.now().latency(address);
        sleep(latency).await;
        let error = |phase, cause| TransportError::at(phase, route(address), cause);
        let failed = |is_absent, shown| {
            self.known().entry(address.to_owned()).or_default().failed = Some((is_absent, shown));
        };
        match self.leads(address) {
            Leads::To(wire) => {
                let (client, server) = ends(&wire);
                match &wire.reaches {
                    Some((instance, number)) => {
                        self.world.now().connect(instance, *number, server, wire.number);
                    }
                    None => {
                        let fault = self.world.now().fault(address);
                        let Some(Fault::Fails(failure)) = fault else {
                            return Err(error(Phase::Call, Cause::Lost("reset by peer".to_owned())));
                        };
                        proxy::serve(server, failure);
                    }
                }
                self.known().entry(address.to_owned()).or_default().failed = None;
                let limit = left(CONNECT_LIMIT);
                let monitor = Arc::new(Monitor { wire, until: begin + limit, limit });
                Ok(Tunnel { stream: Box::new(client), monitor })
            }
            Leads::Fails(failure) => {
                if failure.is_final() {
                    self.origin.rejected(address);
                }
                let limit = failure.takes().map(left).unwrap_or_default();
                sleep(limit).await;
                failed(failure.is_absent(), failure.shows());
                Err(failure.error(&route(address), limit))
            }
            Leads::Unanswered => {
                let limit = left(CONNECT_LIMIT);
                sleep(limit).await;
                failed((limit >= Duration::from_secs(1)).then_some(true), Shown::Nothing);
                Err(error(Phase::Tcp, Cause::TimedOut { limit }))
            }
            Leads::NoSocket => {
                failed(Some(false), Shown::Verified);
                let reason = ChannelRefusal::ConnectFailed;
                let cause = Cause::ChannelRefused { reason, text: "open failed".to_owned() };
                Err(error(Phase::Channel, cause))
            }
        }
    }
}

impl Known {
    /// Returns how often this address has refused the login or shown another host key.
    fn refuses(&mut self, failure: Failure) -> u32 {
        self.refused += u32::from(failure.is_final());
        self.refused
    }
}

impl Connect for Lines {
    fn open<'a>(
        &'a self,
        target: &'a Target,
        deadline: Option<Instant>,
    ) -> BoxFuture<'a, Result<Tunnel, TransportError>> {
        async move { Self::open(self, &address_of(target), deadline).await }.boxed()
    }

    fn call_limit(&self) -> Duration {
        CALL_LIMIT
    }

    fn called(&self, target: &Target, result: Result<Option<&Snapshot>, &ClientError>) {
        let address = address_of(target);
        self.origin.calls(&mut self.world.now(), &address);
        match result {
            Ok(status) => {
                self.world.now().trace.count("answer");
                let instance = self.known().get(&address).and_then(|known| known.instance.clone());
                if let (Some(status), Some(instance)) = (status, instance) {
                    self.origin.received(&instance, &address, status);
                }
            }
            Err(error) => {
                self.world.now().trace.count(errors::name(errors::kind(error)));
                let failed = self.known().get(&address).and_then(|known| known.failed);
                let of_proxy = match self.world.now().fault(&address) {
                    Some(Fault::Fails(failure)) => failure.is_response(),
                    _ => false,
                };
                let (is_absent, shown) = match error {
                    ClientError::Status { .. } if of_proxy => (Some(false), Shown::Refused),
                    // The wrapper has responded.
                    ClientError::Status { .. } => return,
                    ClientError::Transport(_) | ClientError::NoAnswer { .. } => {
                        failed.unwrap_or((Some(false), Shown::Verified))
                    }
                };
                self.origin.no_answer(&address);
                self.origin.failed(&address, is_absent, shown);
            }
        }
    }
}

impl Inner {
    pub(in crate::simulation) fn connection_lost(&mut self, number: u32) {
        if let Some(wire) = self.connections.get(&number) {
            wire.cut(Cause::Lost("reset by peer".to_owned()));
        }
    }

    /// The wrapper with this number has ended: the kernel closes its connections.
    pub(in crate::simulation) fn connections_close(&mut self, instance: &str, number: u32) {
        let is_its = |wire: &&Arc<Wire>| {
            wire.reaches.as_ref().is_some_and(|(at, wrapper)| at == instance && *wrapper == number)
        };
        self.connections.values().filter(is_its).for_each(|wire| wire.cut(Cause::WrapperClosed));
    }

    /// The host is gone: nothing answers on its connections, until SSH notices it.
    pub(in crate::simulation) fn connections_die(&mut self, instance: &str) {
        let is_its = |wire: &Arc<Wire>| wire.reaches.as_ref().is_some_and(|(at, _)| at == instance);
        let numbers: Vec<_> = self
            .connections
            .iter()
            .filter(|(_, wire)| is_its(wire))
            .map(|(number, wire)| {
                wire.dies();
                *number
            })
            .collect();
        for number in numbers {
            self.later("", super::KEEPALIVE, Happening::ConnectionLost { number });
        }
    }

    /// The wrapper accepts a connection.
    fn connect(&mut self, instance: &str, number: u32, end: End, uid: u32) {
        let wrapper = self.wrapper(instance, number);
        if let Some(wrapper) = wrapper {
            wrapper.accept(end, uid);
        }
    }
}

fn address_of(target: &Target) -> String {
    let address = target.address.to_string();
    address.strip_suffix(":22").unwrap_or(&address).to_owned()
}

/// The route of errors to this address.
fn route(address: &str) -> Route {
    Route {
        method: ConnectionMethod::Direct,
        host: address.parse().expect("an address"),
        username: None,
        wrapper: "unix:///w.sock".parse().expect("an address"),
        hop: None,
        onward: None,
        onward_hop: None,
    }
}
