//! A connection between a client of a provider process and a wrapper: two pipes, whose bytes take time, are held up, and can be lost.

use std::{
    collections::VecDeque,
    fmt, io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use async_trait::async_trait;
use grit_provider::testing::transport::{Cause, Peer, Phase, Route, TransportError, TunnelMonitor};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::Notify,
    time::{Instant, timeout_at},
};

use super::{Fault, KEEPALIVE};
use crate::simulation::{
    alarm::Alarm,
    host::Host,
    origin::Origin,
    world::{Happening, World},
};

/// Shared by both ends, and by the world.
pub(in crate::simulation) struct Wire {
    pub(super) world: Arc<World>,
    /// Its number, which the wrapper receives as the user of its requests.
    pub(super) number: u32,
    pub(in crate::simulation) address: String,
    /// The instance and its wrapper; `None`: a proxy responds.
    pub(in crate::simulation) reaches: Option<(String, u32)>,
    /// The provider process.
    pub(in crate::simulation) origin: Arc<Origin>,
    pub(super) route: Route,
    /// A stream that is open and reports nothing does not concern this connection, which is younger.
    pub(super) is_after_half_open: bool,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    to_server: Pipe,
    to_client: Pipe,
    /// Why it was closed.
    reason: Option<Cause>,
    has_received: bool,
    /// What happens to the next response.
    at_response: Option<AtResponse>,
    /// The client sees the end, and the server what was sent before, later.
    is_late: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AtResponse {
    Cut,
    /// It never arrives, and nothing after it.
    Lost,
}

/// One direction.
#[derive(Default)]
struct Pipe {
    /// With the moment of their arrival.
    bytes: VecDeque<(Instant, VecDeque<u8>)>,
    last: Option<Instant>,
    /// When bytes were written last. Others of the same moment arrive with them: how many writes a message needs depends on its length.
    written: Option<Instant>,
    frames: Frames,
    /// The writer has closed it: after the bytes comes the end.
    is_ended: bool,
    is_cut: bool,
    /// What is written is lost.
    is_dead: bool,
    reader: Option<Waker>,
}

/// Finds the HEADERS frames of requests and responses in the bytes of HTTP/2.
#[derive(Default)]
struct Frames {
    /// So many bytes belong to the preface, or to the frame whose header was read.
    skip: usize,
    header: Vec<u8>,
}

impl Frames {
    fn of_client() -> Self {
        const PREFACE: usize = 24;
        Self { skip: PREFACE, header: Vec::new() }
    }

    /// Whether a request or a response begins in these bytes.
    fn begins(&mut self, bytes: &[u8]) -> bool {
        const HEADERS: u8 = 1;
        let mut begins = false;
        for byte in bytes {
            if self.skip > 0 {
                self.skip -= 1;
                continue;
            }
            self.header.push(*byte);
            if let [a, b, c, kind, _, _, _, _, _] = self.header[..] {
                self.skip = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
                begins |= kind == HEADERS;
                self.header.clear();
            }
        }
        begins
    }
}

impl Pipe {
    /// When bytes arrive that follow others of the same moment.
    fn arrives_with_last(&self) -> Option<Instant> {
        self.last.filter(|_| self.written == Some(Instant::now()))
    }

    fn push(&mut self, bytes: &[u8], arrives: Instant) {
        if self.is_dead || self.is_cut {
            return;
        }
        self.written = Some(Instant::now());
        // In order.
        let arrives = self.last.map_or(arrives, |last| last.max(arrives));
        self.last = Some(arrives);
        self.bytes.push_back((arrives, bytes.iter().copied().collect()));
        self.wake();
    }

    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    fn cut(&mut self) {
        self.is_cut = true;
        self.bytes.clear();
        self.wake();
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connection {}", self.number)
    }
}

impl Wire {
    pub(super) fn new(
        world: Arc<World>,
        number: u32,
        (address, route): (String, Route),
        reaches: Option<(String, u32)>,
        origin: Arc<Origin>,
        is_after_half_open: bool,
    ) -> Arc<Self> {
        let to_server = Pipe { frames: Frames::of_client(), ..Pipe::default() };
        let state = Mutex::new(State { to_server, ..State::default() });
        let changed = Notify::new();
        Arc::new(Self { world, number, address, reaches, origin, route, is_after_half_open, state, changed })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Both ends see that it is closed.
    pub(in crate::simulation) fn cut(&self, reason: Cause) {
        let mut state = self.lock();
        state.reason.get_or_insert(reason);
        state.to_server.cut();
        state.to_client.cut();
        drop(state);
        self.changed.notify_waiters();
    }

    /// Nothing arrives any more.
    pub(in crate::simulation) fn dies(&self) {
        let mut state = self.lock();
        (state.to_server.is_dead, state.to_client.is_dead) = (true, true);
        state.to_server.bytes.clear();
        state.to_client.bytes.clear();
    }

    fn lost() -> Cause {
        Cause::Lost("reset by peer".to_owned())
    }

    /// The client has written bytes.
    fn client_writes(&self, bytes: &[u8]) {
        let now = Instant::now();
        let (begins, with_last) = {
            let pipe = &mut self.lock().to_server;
            (pipe.frames.begins(bytes), pipe.arrives_with_last())
        };
        let mut arrives;
        let mut late = None;
        {
            let mut world = self.world.now();
            let fault = world.fault_until(&self.address);
            arrives = with_last.unwrap_or_else(|| now + world.latency(&self.address));
            match fault {
                Some((Fault::Silent, end)) => {
                    arrives = end.max(arrives);
                    if end > now + KEEPALIVE {
                        world.later("", KEEPALIVE, Happening::ConnectionLost { number: self.number });
                    }
                }
                Some((Fault::Fails(_), _)) if begins && self.reaches.is_some() => {
                    drop(world);
                    return self.cut(Self::lost());
                }
                Some((Fault::CutAfterRequest, _)) if begins => {
                    self.lock().at_response = Some(AtResponse::Cut);
                }
                Some((Fault::NoResponse, _)) if begins => {
                    self.lock().at_response = Some(AtResponse::Lost);
                }
                Some((Fault::Late, _)) if begins => {
                    late = Some(world.random.millis(200, 20_000));
                    world.trace.count("late request");
                }
                _ => {}
            }
        }
        let mut state = self.lock();
        state.to_server.push(bytes, late.map_or(arrives, |late| now + late));
        if late.is_some() {
            state.is_late = true;
            state.to_server.is_ended = true;
            state.reason.get_or_insert(Cause::Lost("timed out".to_owned()));
            state.to_client.cut();
            drop(state);
            self.changed.notify_waiters();
        }
    }

    /// The wrapper has written bytes.
    fn server_writes(&self, bytes: &[u8]) {
        let now = Instant::now();
        let with_last = self.lock().to_client.arrives_with_last();
        let arrives = {
            let mut world = self.world.now();
            let fault = world.fault_until(&self.address);
            let latency = if with_last.is_some() { Duration::ZERO } else { world.latency(&self.address) };
            let thaws = self.thaws(&world.hosts).unwrap_or(now);
            let held = match fault {
                Some((Fault::Silent, end)) => end,
                Some((Fault::HalfOpen, end)) if !self.is_after_half_open => end,
                _ => now,
            };
            (thaws + latency).max(held)
        };
        let mut state = self.lock();
        if state.to_client.frames.begins(bytes) {
            match state.at_response.take() {
                Some(AtResponse::Cut) => {
                    drop(state);
                    return self.cut(Self::lost());
                }
                Some(AtResponse::Lost) => state.to_client.is_dead = true,
                None => {}
            }
        }
        state.to_client.push(bytes, arrives);
    }

    /// When the wrapper reads and writes again.
    fn thaws(&self, hosts: &std::collections::BTreeMap<String, Host>) -> Option<Instant> {
        let (instance, _) = self.reaches.as_ref()?;
        hosts.get(instance)?.thaws()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

/// One end, as a stream of bytes.
pub(super) struct End {
    wire: Arc<Wire>,
    side: Side,
    alarm: Alarm,
}

/// The ends of the client and of the server.
pub(super) fn ends(wire: &Arc<Wire>) -> (End, End) {
    let end = |side| End { wire: Arc::clone(wire), side, alarm: Alarm::default() };
    (end(Side::Client), end(Side::Server))
}

impl End {
    fn pipe(side: Side, state: &mut State) -> &mut Pipe {
        match side {
            Side::Client => &mut state.to_client,
            Side::Server => &mut state.to_server,
        }
    }

    /// The other end sees the end after the bytes.
    fn closes(&self) -> MutexGuard<'_, State> {
        let mut state = self.wire.lock();
        let other = if self.side == Side::Client { Side::Server } else { Side::Client };
        let pipe = Self::pipe(other, &mut state);
        pipe.is_ended = true;
        pipe.wake();
        state
    }
}

impl AsyncRead for End {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            let thaws = match this.side {
                Side::Client => None,
                Side::Server => this.wire.thaws(&this.wire.world.now().hosts),
            };
            if let Some(until) = thaws {
                ready!(this.alarm.poll_until(until, context));
                continue;
            }
            let wire = Arc::clone(&this.wire);
            let mut state = wire.lock();
            let is_late = state.is_late;
            let pipe = Self::pipe(this.side, &mut state);
            if pipe.is_cut {
                return Poll::Ready(match this.side {
                    Side::Client => Err(io::ErrorKind::ConnectionReset.into()),
                    Side::Server => Ok(()),
                });
            }
            pipe.reader = Some(context.waker().clone());
            let Some((arrives, bytes)) = pipe.bytes.front_mut() else {
                return if pipe.is_ended { Poll::Ready(Ok(())) } else { Poll::Pending };
            };
            let arrives = *arrives;
            if arrives > Instant::now() {
                drop(state);
                ready!(this.alarm.poll_until(arrives, context));
                continue;
            }
            let count = bytes.len().min(buffer.remaining());
            let read: Vec<u8> = bytes.drain(..count).collect();
            buffer.put_slice(&read);
            if bytes.is_empty() {
                pipe.bytes.pop_front();
            }
            if this.side == Side::Client {
                state.has_received = true;
            }
            drop(state);
            wire.changed.notify_waiters();
            if is_late
                && this.side == Side::Server
                && let Some((instance, _)) = &wire.reaches
            {
                wire.world.now().late_request_arrives(instance);
            }
            return Poll::Ready(Ok(()));
        }
    }
}

impl AsyncWrite for End {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let is_closed = match self.side {
            Side::Client => self.wire.lock().to_client.is_cut,
            Side::Server => self.wire.lock().to_server.is_cut,
        };
        if is_closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        match self.side {
            Side::Client => self.wire.client_writes(bytes),
            Side::Server => self.wire.server_writes(bytes),
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        drop(self.closes());
        Poll::Ready(Ok(()))
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let mut state = self.closes();
        if self.side == Side::Server {
            state.reason.get_or_insert(Cause::WrapperClosed);
        }
    }
}

/// The monitor of the client's end.
pub(super) struct Monitor {
    pub(super) wire: Arc<Wire>,
    /// The end of the attempt to connect.
    pub(super) until: Instant,
    pub(super) limit: Duration,
}

#[async_trait]
impl TunnelMonitor for Monitor {
    async fn close_reason(&self) -> Option<TransportError> {
        let reason = self.wire.lock().reason.clone()?;
        Some(TransportError::at(Phase::Call, self.wire.route.clone(), reason))
    }

    async fn first_byte(&self) -> Result<(), TransportError> {
        loop {
            let changed = self.wire.changed.notified();
            {
                let state = self.wire.lock();
                if state.has_received || state.to_client.is_cut || state.to_client.is_ended {
                    return Ok(());
                }
            }
            if timeout_at(self.until, changed).await.is_err() {
                let cause = Cause::NoResponse { from: Peer::Wrapper, limit: self.limit };
                return Err(TransportError::at(Phase::Channel, self.wire.route.clone(), cause));
            }
        }
    }

    fn route(&self) -> &Route {
        &self.wire.route
    }
}
