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
use grit_wrapper::supervise::Event;
use tokio::time::{Instant, sleep};
use tonic::Code;

use super::{Failure, Fault, errors};
use crate::simulation::{
    host::Changes,
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

/// Why a wrapper does not carry a request out.
struct Rejected(Code, String);

/// How far a call came.
enum Arrival<T> {
    Done(Result<T, ClientError>),
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
    fn arrive<T>(&self, world: &mut Inner, method: &'static str) -> Result<String, Arrival<T>> {
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

    fn fails<T>(&self, world: &mut Inner, method: &'static str, failure: Failure) -> Arrival<T> {
        if failure.is_final() && self.refused.fetch_add(1, Relaxed) >= LOGINS {
            let what = format!("{method}: a rejected login or host key is tried again ({failure:?})");
            world.violation(&self.address, what);
        }
        Arrival::Fails(failure)
    }

    /// One call: there, what the wrapper does, and back.
    async fn call<T>(
        &self,
        method: &'static str,
        deadline: Option<Instant>,
        work: impl FnOnce(&mut Inner, &str) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let begin = Instant::now();
        let left =
            |limit: Duration| deadline.map_or(limit, |end| limit.min(end.saturating_duration_since(begin)));
        let latency = self.world.now().latency(&self.address);
        sleep(latency).await;
        if !matches!(method, "GetStatus" | "ListJobs") {
            self.wait_for_task().await;
        }
        let arrival = self.carry_out(method, work);
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
                sleep(limit).await;
                shown = Shown::Verified;
                ClientError::NoAnswer { method, limit, route: Box::new(self.route.clone()) }
            }
        };
        self.world.now().trace.count(format!("client error: {}", errors::kind(&error)));
        self.origin.failed(&self.address, is_absent, shown);
        Err(error)
    }

    /// A request waits in the queue of the wrapper's task.
    async fn wait_for_task(&self) {
        loop {
            let busy = self.world.now().busy_task(&self.address);
            let Some(changes) = busy else { return };
            changes.next().await;
        }
    }

    fn carry_out<T>(
        &self,
        method: &'static str,
        work: impl FnOnce(&mut Inner, &str) -> Result<T, ClientError>,
    ) -> Arrival<T> {
        let mut world = self.world.now();
        let instance = match self.arrive(&mut world, method) {
            Ok(instance) => instance,
            Err(failed) => return failed,
        };
        let done = work(&mut world, &instance);
        world.trace.count(format!("call {method}"));
        match world.fault(&self.address) {
            Some(Fault::CutAfterRequest) => {
                world.log(&instance, format!("the answer to {method} is lost"));
                Arrival::Failed(self.error(Phase::Call, Cause::Lost("reset by peer".to_owned())))
            }
            Some(Fault::Late) => {
                world.log(&instance, format!("{method} is late"));
                Arrival::Failed(self.error(Phase::Call, Cause::Lost("timed out".to_owned())))
            }
            Some(Fault::NoResponse) => {
                world.log(&instance, format!("the answer to {method} never arrives"));
                Arrival::NoResponse
            }
            // The wrapper was killed while it carried the request out.
            _ if world.hosts.get(&instance).is_none_or(|host| host.wrapper.is_none()) => {
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

    /// A request that changes something. It can arrive late, or twice.
    async fn request(
        &self,
        method: &'static str,
        request: Request,
        deadline: Option<Instant>,
    ) -> Result<v1::Status, ClientError> {
        let work = |world: &mut Inner, instance: &str| {
            if let Request::Drain(request) = &request {
                self.origin.sends_drain(world, instance, &self.address, request.mode() == v1::Mode::Forceful);
            }
            let fault = world.fault(&self.address);
            if matches!(fault, Some(Fault::Late | Fault::Duplicated)) {
                world.send_late(instance, request.clone());
            }
            if fault == Some(Fault::Late) {
                return Ok((String::new(), v1::Status::default()));
            }
            self.origin.changes(world, instance, &request);
            let done = world.carry_out(instance, &request);
            done.map_err(|Rejected(code, message)| ClientError::Status {
                method,
                code,
                message,
                route: Box::new(self.route.clone()),
            })?;
            Ok((instance.to_owned(), world.status(instance)))
        };
        self.call(method, deadline, work).await.map(|answer| self.received(answer))
    }

    /// The status of an instance has arrived.
    fn received(&self, (instance, status): (String, v1::Status)) -> v1::Status {
        self.origin.received(&instance, &self.address, &status);
        status
    }
}

impl SimulatedWrapper for Line {
    fn read_status(&self, deadline: Option<Instant>) -> BoxFuture<'_, Result<v1::Status, ClientError>> {
        let work = |world: &mut Inner, instance: &str| Ok((instance.to_owned(), world.status(instance)));
        async move { self.call("GetStatus", deadline, work).await.map(|answer| self.received(answer)) }
            .boxed()
    }

    fn changed(&self) -> BoxFuture<'_, ()> {
        async {
            let changes = {
                let mut world = self.world.now();
                let instance = world.addresses.get(&self.address).cloned();
                let is_open = world.fault(&self.address) != Some(Fault::HalfOpen);
                instance.filter(|_| is_open).and_then(|instance| world.watch(&instance))
            };
            match changes {
                Some(changes) => {
                    if !changes.next().await {
                        pending::<()>().await;
                    }
                    let latency = self.world.now().latency(&self.address);
                    sleep(latency).await;
                }
                None => pending().await,
            }
        }
        .boxed()
    }

    fn drain(
        &self,
        request: v1::DrainRequest,
        deadline: Option<Instant>,
    ) -> BoxFuture<'_, Result<v1::Status, ClientError>> {
        self.request("Drain", Request::Drain(request), deadline).boxed()
    }

    fn running_jobs(&self, deadline: Option<Instant>) -> BoxFuture<'_, Result<Vec<u64>, ClientError>> {
        let work = |world: &mut Inner, instance: &str| {
            let runner = world.hosts.get(instance).and_then(|host| host.runner.as_ref());
            Ok(runner.map(|runner| runner.jobs.iter().copied().collect()).unwrap_or_default())
        };
        self.call("ListJobs", deadline, work).boxed()
    }

    fn start(&self, deadline: Option<Instant>) -> BoxFuture<'_, Result<(), ClientError>> {
        async move { self.request("Start", Request::Start, deadline).await.map(drop) }.boxed()
    }
}

impl Inner {
    /// The changes of a wrapper whose task is busy.
    fn busy_task(&self, address: &str) -> Option<Changes> {
        let host = self.addresses.get(address).and_then(|instance| self.hosts.get(instance));
        let host = host.filter(|host| self.fault(address).is_none() && host.is_busy())?;
        Some(host.queue.clone())
    }

    fn carry_out(&mut self, instance: &str, request: &Request) -> Result<(), Rejected> {
        let event = match request {
            Request::Drain(request) => match grit_wrapper::testing::requested_stop(request) {
                Ok(stop) => Event::Stop(stop),
                Err(why) => return Err(Rejected(Code::InvalidArgument, why)),
            },
            Request::Start => Event::Start,
        };
        let refused = |refusal: grit_wrapper::supervise::Refusal| {
            Rejected(Code::FailedPrecondition, refusal.to_string())
        };
        self.deliver(instance, event).map_err(refused)?;
        match request {
            Request::Drain(request) => self.accepted(instance, request.mode() == v1::Mode::Forceful),
            Request::Start => self.cancelled(instance),
        }
        Ok(())
    }

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
        let _rejected = self.carry_out(instance, &request);
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
