//! The way from the provider to the wrapper at one address: the simulated client of a wrapper.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use futures::future::{BoxFuture, FutureExt as _, pending};
use grit_proto::wrapper_v1 as v1;
use grit_provider::testing::{
    client::ClientError,
    simulation::SimulatedWrapper,
    transport::{Cause, ChannelRefusal, ConnectionMethod, Phase, Route, TransportError},
};
use grit_wrapper::testing::Client;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{Failure, Fault, errors};
use crate::simulation::{
    host::{Host, program::answered},
    origin::{Origin, Shown},
    world::{Happening, Inner, World},
};

/// The default of `connect_timeout`, which is the limit of a connection that no one answers.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
const CALL_LIMIT: Duration = Duration::from_secs(30);
/// The health check connects to old runners before it requests their drains, so a drain can follow a refused login once.
const LOGINS: u32 = 2;

#[derive(Debug)]
pub(in crate::simulation) struct Line {
    world: Arc<World>,
    origin: Arc<Origin>,
    address: String,
    route: Route,
    /// The refused logins.
    refused: AtomicU32,
}

/// A request that changes something.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::simulation) enum Request {
    Drain(v1::DrainRequest),
    Start,
}

/// A request on its way, to the wrapper process with this number.
#[derive(Debug)]
pub(in crate::simulation) struct LateRequest {
    request: Request,
    wrapper: u32,
}

/// How far a call came.
enum Arrival {
    Done(Result<Response, ClientError>),
    Failed(ClientError),
    Fails(Failure),
    /// Nothing answers, until the limit.
    Unanswered,
    NoResponse,
}

impl Line {
    pub(in crate::simulation) fn new(world: Arc<World>, origin: Arc<Origin>, address: String) -> Self {
        Self { world, origin, route: route(&address), address, refused: AtomicU32::new(0) }
    }

    fn error(&self, phase: Phase, cause: Cause) -> ClientError {
        TransportError::at(phase, self.route.clone(), cause).into()
    }

    /// The instance at whose wrapper a request arrives, or why it arrives nowhere.
    fn arrive(&self, world: &mut Inner, method: &'static str) -> Result<String, Arrival> {
        match world.fault(&self.address) {
            Some(Fault::Silent) => return Err(Arrival::Unanswered),
            Some(Fault::Fails(failure)) => return Err(self.fails(world, method, failure)),
            _ => {}
        }
        let instance = world.addresses.get(&self.address).ok_or(Arrival::Unanswered)?;
        match world.hosts.get(instance) {
            Some(host) if host.is_off() => Err(Arrival::Unanswered),
            Some(host) if host.wrapper.is_some() => Ok(instance.clone()),
            Some(_) => {
                let reason = ChannelRefusal::ConnectFailed;
                let cause = Cause::ChannelRefused { reason, text: "open failed".to_owned() };
                Err(Arrival::Failed(self.error(Phase::Channel, cause)))
            }
            None => Err(Arrival::Unanswered),
        }
    }

    fn fails(&self, world: &mut Inner, method: &'static str, failure: Failure) -> Arrival {
        if failure.is_final() && self.refused.fetch_add(1, Relaxed) >= LOGINS {
            let what = format!("{method}: a rejected login or host key is tried again ({failure:?})");
            world.violation(&self.address, what);
        }
        Arrival::Fails(failure)
    }

    /// One call: there, what the wrapper does, and back.
    async fn call(
        &self,
        method: &'static str,
        deadline: Option<Instant>,
        work: Work<'_>,
    ) -> Result<Response, ClientError> {
        let begin = Instant::now();
        let left =
            |limit: Duration| deadline.map_or(limit, |end| limit.min(end.saturating_duration_since(begin)));
        let latency = self.world.now().latency(&self.address);
        sleep(latency).await;
        let arrival = match timeout(left(CALL_LIMIT), self.carry_out(method, work)).await {
            Ok(arrival) => arrival,
            Err(_) => Arrival::NoResponse,
        };
        if !matches!(arrival, Arrival::Done(_)) {
            self.origin.no_answer(&self.address);
        }
        let (mut is_absent, mut shown) = (Some(false), Shown::Nothing);
        let error = match arrival {
            Arrival::Done(done) => {
                sleep(latency).await;
                return done;
            }
            Arrival::Failed(error) => {
                shown = Shown::Verified;
                error
            }
            Arrival::Fails(failure) => {
                (is_absent, shown) = (failure.is_absent(), failure.shows());
                if failure.is_final() {
                    self.origin.rejected(&self.address);
                }
                let limit = failure.takes().map(left).unwrap_or_default();
                sleep(limit).await;
                failure.error(method, &self.route, limit)
            }
            Arrival::Unanswered => {
                let limit = left(CONNECT_LIMIT);
                sleep(limit).await;
                is_absent = (limit >= Duration::from_secs(1)).then_some(true);
                self.error(Phase::Tcp, Cause::TimedOut { limit })
            }
            Arrival::NoResponse => {
                let limit = left(CALL_LIMIT);
                sleep_until(begin + latency + limit).await;
                shown = Shown::Verified;
                ClientError::NoAnswer { method, limit, route: Box::new(self.route.clone()) }
            }
        };
        self.world.now().trace.count(format!("client error: {}", errors::kind(&error)));
        self.origin.failed(&self.address, is_absent, shown);
        Err(error)
    }

    /// The wrapper that the call reaches, when its thread is free.
    async fn reach(&self, method: &'static str) -> Result<(String, u32, Client), Arrival> {
        loop {
            let thaws = {
                let mut world = self.world.now();
                let instance = self.arrive(&mut world, method)?;
                let host = world.hosts.get(&instance);
                let thaws = host.and_then(Host::thaws);
                let number = host.and_then(|host| Some(host.wrapper.as_ref()?.number()));
                match (thaws, host.and_then(Host::client), number) {
                    (None, Some(client), Some(number)) => return Ok((instance, number, client)),
                    (Some(until), ..) => until,
                    // It has just been started.
                    (None, ..) => Instant::now() + Duration::from_millis(1),
                }
            };
            sleep_until(thaws).await;
        }
    }

    async fn carry_out(&self, method: &'static str, work: Work<'_>) -> Arrival {
        let (instance, number, client) = match self.reach(method).await {
            Ok(reached) => reached,
            Err(failed) => return failed,
        };
        let mut is_late = false;
        let done = match work {
            Work::Status => Ok(Response::Status(instance.clone(), Box::new(client.status()))),
            Work::Jobs => {
                let world = self.world.now();
                let runner = world.hosts.get(&instance).and_then(|host| host.runner.as_ref());
                let jobs = runner.map(|runner| runner.jobs.iter().copied().collect());
                Ok(Response::Jobs(jobs.unwrap_or_default()))
            }
            Work::Change(request) => {
                is_late = self.sent(&instance, request);
                let carried = match is_late {
                    true => Ok(()),
                    false => carry_out(&self.world, &instance, number, &client, request).await,
                };
                carried.map(|()| Response::Status(instance.clone(), Box::new(client.status())))
            }
        };
        let done = done.map_err(|status| ClientError::Status {
            method,
            code: status.code(),
            message: status.message().to_owned(),
            route: Box::new(self.route.clone()),
        });
        let mut world = self.world.now();
        world.trace.count(format!("call {method}"));
        match world.fault(&self.address) {
            _ if is_late => {
                world.log(&instance, format!("{method} is late"));
                Arrival::Failed(self.error(Phase::Call, Cause::Lost("timed out".to_owned())))
            }
            Some(Fault::CutAfterRequest) => {
                world.log(&instance, format!("the answer to {method} is lost"));
                Arrival::Failed(self.error(Phase::Call, Cause::Lost("reset by peer".to_owned())))
            }
            Some(Fault::Late) => {
                Arrival::Failed(self.error(Phase::Call, Cause::Lost("timed out".to_owned())))
            }
            Some(Fault::NoResponse) => {
                world.log(&instance, format!("the answer to {method} never arrives"));
                Arrival::NoResponse
            }
            // The wrapper was killed while it carried the request out.
            _ if world.wrapper(&instance, number).is_none() => {
                Arrival::Failed(self.error(Phase::Call, Cause::WrapperClosed))
            }
            _ => {
                world.trace.count("answer");
                if let Err(error) = &done {
                    world.trace.count(format!("client error: {}", errors::kind(error)));
                }
                Arrival::Done(done)
            }
        }
    }

    /// A request that changes something is sent. It can arrive late, which is returned, or twice.
    fn sent(&self, instance: &str, request: &Request) -> bool {
        let world = &mut *self.world.now();
        if let Request::Drain(request) = request {
            self.origin.sends_drain(world, instance, &self.address, request.mode() == v1::Mode::Forceful);
        }
        let fault = world.fault(&self.address);
        if matches!(fault, Some(Fault::Late | Fault::Duplicated)) {
            world.send_late(instance, request.clone());
        }
        if fault == Some(Fault::Late) {
            return true;
        }
        self.origin.changes(world, instance, request);
        false
    }

    /// The status that a call has returned.
    async fn status(
        &self,
        method: &'static str,
        deadline: Option<Instant>,
        work: Work<'_>,
    ) -> Result<v1::Status, ClientError> {
        match self.call(method, deadline, work).await? {
            Response::Status(instance, status) => {
                self.origin.received(&instance, &self.address, &status);
                Ok(*status)
            }
            Response::Jobs(_) => Ok(v1::Status::default()),
        }
    }
}

/// What a call asks for.
enum Work<'a> {
    Status,
    Jobs,
    Change(&'a Request),
}

/// The response to a call.
enum Response {
    /// Of this instance.
    Status(String, Box<v1::Status>),
    Jobs(Vec<u64>),
}

/// The wrapper carries a request out.
async fn carry_out(
    world: &World,
    instance: &str,
    number: u32,
    client: &Client,
    request: &Request,
) -> Result<(), tonic::Status> {
    match request {
        Request::Drain(request) => client.drain(request.clone()).await?,
        Request::Start => client.start().await?,
    }
    answered(world, instance, number, true).await;
    let mut now = world.now();
    match request {
        Request::Drain(request) => now.accepted(instance, request.mode() == v1::Mode::Forceful),
        Request::Start => now.cancelled(instance),
    }
    Ok(())
}

impl SimulatedWrapper for Line {
    fn read_status(&self, deadline: Option<Instant>) -> BoxFuture<'_, Result<v1::Status, ClientError>> {
        self.status("GetStatus", deadline, Work::Status).boxed()
    }

    fn changed(&self) -> BoxFuture<'_, ()> {
        async {
            let watched = {
                let world = self.world.now();
                let instance = world.addresses.get(&self.address).cloned();
                let is_open = world.fault(&self.address) != Some(Fault::HalfOpen);
                let client = instance.filter(|_| is_open).and_then(|id| world.hosts.get(&id)?.client());
                client.map(|client| client.watch())
            };
            let Some(mut watched) = watched else { return pending().await };
            if !watched.next().await {
                return pending().await;
            }
            let latency = self.world.now().latency(&self.address);
            sleep(latency).await;
        }
        .boxed()
    }

    fn drain(
        &self,
        request: v1::DrainRequest,
        deadline: Option<Instant>,
    ) -> BoxFuture<'_, Result<v1::Status, ClientError>> {
        async move {
            let request = Request::Drain(request);
            self.status("Drain", deadline, Work::Change(&request)).await
        }
        .boxed()
    }

    fn running_jobs(&self, deadline: Option<Instant>) -> BoxFuture<'_, Result<Vec<u64>, ClientError>> {
        async move {
            match self.call("ListJobs", deadline, Work::Jobs).await? {
                Response::Jobs(jobs) => Ok(jobs),
                Response::Status(..) => Ok(Vec::new()),
            }
        }
        .boxed()
    }

    fn start(&self, deadline: Option<Instant>) -> BoxFuture<'_, Result<(), ClientError>> {
        async move { self.status("Start", deadline, Work::Change(&Request::Start)).await.map(drop) }.boxed()
    }
}

impl Inner {
    /// The request arrives later, at the same process of the wrapper.
    fn send_late(&mut self, instance: &str, request: Request) {
        let Some(wrapper) = self.hosts.get(instance).and_then(|host| host.wrapper.as_ref()) else { return };
        let wrapper = wrapper.number();
        let number = self.late.len() as u64;
        self.late.push(LateRequest { request, wrapper });
        let delay = self.random.millis(200, 20_000);
        self.later(instance, delay, Happening::LateRequest { number });
    }

    pub(in crate::simulation) fn late_request_arrives(&mut self, instance: &str, number: u64) {
        let Some(LateRequest { request, wrapper }) =
            usize::try_from(number).ok().and_then(|at| self.late.get(at))
        else {
            return;
        };
        let (request, wrapper) = (request.clone(), *wrapper);
        let host = self.hosts.get(instance).and_then(|host| host.wrapper.as_ref());
        if host.is_none_or(|host| host.number() != wrapper) {
            return;
        }
        let name = match &request {
            Request::Drain(_) => "drain",
            Request::Start => {
                if self.hosts.get(instance).is_some_and(|host| host.promise.accepted) {
                    self.excuses.insert(instance.to_owned(), "a request to start its runner was late");
                }
                "start"
            }
        };
        self.log(instance, format!("a late request arrives: {name}"));
        self.trace.count(format!("late request: {name}"));
        let client = self.hosts.get(instance).and_then(Host::client);
        if let (Some(world), Some(client)) = (self.world.upgrade(), client) {
            let instance = instance.to_owned();
            tokio::spawn(async move {
                let _rejected = carry_out(&world, &instance, wrapper, &client, &request).await;
            });
        }
    }
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
