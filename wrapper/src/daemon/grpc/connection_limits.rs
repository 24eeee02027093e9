//! The connection limits of one listener.
//!
//! The kernel reports the user at the other end of a unix socket. Each user has a limit, and some connections are reserved for root and the
//! wrapper's own user, so that no user can block another one. TCP peers have no user: they share all connections.
//!
//! At a limit, a new connection evicts the one that has been idle (without an open call) for longest. A connection with an open call is never
//! evicted: a watch lasts for days. The number of connections with a watch is limited too, so that the same user can still stop the runner.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Open connections of all peers; a deployment needs one.
pub(super) const MAX_CONNECTIONS: usize = 64;

const MAX_PER_USER: usize = 16;

/// Connections that only privileged peers can open.
const RESERVED_FOR_PRIVILEGED: usize = 16;

/// Connections below each limit that cannot have a watch.
const RESERVED_FOR_CONTROL: usize = 4;

/// How long a connection has to be idle before it can be evicted. Clients that poll do so more often.
const MIN_IDLE_TIME: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// Root, or the wrapper's own user.
    Privileged,
    User(u32),
    /// TCP.
    Unknown,
}

/// A limit, and the condition on which another peer counts towards the limit of the first one.
type Limit = (usize, fn(Peer, Peer) -> bool);

impl Peer {
    fn limits(self) -> &'static [Limit] {
        match self {
            Self::Privileged | Self::Unknown => &[(MAX_CONNECTIONS, |_, _| true)],
            Self::User(_) => &[
                (MAX_PER_USER, |peer, other| other == peer),
                (MAX_CONNECTIONS - RESERVED_FOR_PRIVILEGED, |_, other| other != Peer::Privileged),
            ],
        }
    }
}

/// The open connections of one listener.
#[derive(Clone, Debug, Default)]
pub(super) struct Connections(Arc<Mutex<BTreeMap<u64, State>>>);

#[derive(Debug)]
struct State {
    peer: Peer,
    calls: usize,
    watches: usize,
    /// The end of the last call, or the begin of the connection.
    idle_since: Instant,
    evicted: CancellationToken,
}

/// A connection that counts towards the limits until this value is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) id: ConnectionId,
    /// Cancelled when the connection has to close for another one.
    pub(super) evicted: CancellationToken,
}

#[derive(Clone, Debug)]
pub(super) struct ConnectionId {
    id: u64,
    open: Connections,
}

/// A call that is open until this value is dropped.
#[derive(Debug)]
pub(super) struct Call {
    connection: ConnectionId,
    is_watch: bool,
}

/// The number of connections with watches that the peer cannot exceed.
#[derive(Debug)]
pub(super) struct WatchLimit(pub(super) usize);

impl Connections {
    /// `None` when a limit is reached and no connection can be evicted.
    pub(super) fn open(&self, peer: Peer) -> Option<Slot> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let mut open = self.lock();
        if !peer.limits().iter().all(|limit| make_room(&mut open, peer, *limit)) {
            return None;
        }
        let id = NEXT_ID.fetch_add(1, Relaxed);
        let evicted = CancellationToken::new();
        let state =
            State { peer, calls: 0, watches: 0, idle_since: Instant::now(), evicted: evicted.clone() };
        open.insert(id, state);
        Some(Slot { id: ConnectionId { id, open: self.clone() }, evicted })
    }

    /// A panic cannot leave the map half changed.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, State>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Evicts a connection at the limit, and returns whether the peer can open another one.
fn make_room(open: &mut BTreeMap<u64, State>, peer: Peer, (limit, counts): Limit) -> bool {
    let members = open.iter().filter(|(_, other)| counts(peer, other.peer));
    if members.clone().count() < limit {
        return true;
    }
    let idle = members.filter(|(_, other)| other.calls == 0 && other.idle_since.elapsed() >= MIN_IDLE_TIME);
    let longest = idle.min_by_key(|(_, other)| other.idle_since).map(|(id, _)| *id);
    let evicted = longest.and_then(|id| open.remove(&id));
    evicted.map(|state| state.evicted.cancel()).is_some()
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.id.open.lock().remove(&self.id.id);
    }
}

impl ConnectionId {
    /// Further watches over a connection that has one are not limited.
    pub(super) fn begin_call(&self, is_watch: bool) -> Result<Call, WatchLimit> {
        let mut open = self.open.lock();
        if let Some(peer) = open.get(&self.id).filter(|_| is_watch).map(|state| state.peer) {
            for (limit, counts) in peer.limits() {
                let limit = limit - RESERVED_FOR_CONTROL;
                let others = open.iter().filter(|(id, other)| **id != self.id && counts(peer, other.peer));
                if others.filter(|(_, other)| other.watches > 0).count() >= limit {
                    return Err(WatchLimit(limit));
                }
            }
        }
        // An evicted connection is not there any more.
        if let Some(state) = open.get_mut(&self.id) {
            state.calls += 1;
            state.watches += usize::from(is_watch);
        }
        Ok(Call { connection: self.clone(), is_watch })
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let Some(state) = self.connection.open.lock().get_mut(&self.connection.id) {
            state.calls -= 1;
            state.watches -= usize::from(self.is_watch);
            state.idle_since = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const EVE: Peer = Peer::User(1001);

    fn fill(open: &Connections, peer: Peer) -> Vec<Slot> {
        std::iter::from_fn(|| open.open(peer)).collect()
    }

    fn call(slot: &Slot) -> Call {
        slot.id.begin_call(false).unwrap()
    }

    fn watch(slot: &Slot) -> Result<Call, WatchLimit> {
        slot.id.begin_call(true)
    }

    fn is_evicted(slot: &Slot) -> bool {
        slot.evicted.is_cancelled()
    }

    #[tokio::test(start_paused = true)]
    async fn one_user_gets_a_limited_share_of_slots() {
        let open = Connections::default();
        let eves = fill(&open, EVE);
        assert_eq!(eves.len(), MAX_PER_USER);
        // Three users fill all that is not reserved, so a fourth one gets no connection.
        let (bobs, carols) = (fill(&open, Peer::User(1002)), fill(&open, Peer::User(1003)));
        assert_eq!((bobs.len(), carols.len()), (MAX_PER_USER, MAX_PER_USER));
        assert!(open.open(Peer::User(1004)).is_none());
        let roots = fill(&open, Peer::Privileged);
        assert_eq!(roots.len(), RESERVED_FOR_PRIVILEGED);
        assert_eq!(fill(&Connections::default(), Peer::Privileged).len(), MAX_CONNECTIONS);
        assert_eq!(fill(&Connections::default(), Peer::Unknown).len(), MAX_CONNECTIONS);
        drop(eves);
        assert!(open.open(Peer::User(1004)).is_some() && open.open(EVE).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connections_are_evicted_active_are_not() {
        let open = Connections::default();
        let eves = fill(&open, EVE);
        let mut calls = eves.iter().map(call).collect::<Vec<_>>().into_iter();
        let other = open.open(Peer::User(1002)).unwrap();
        advance(MIN_IDLE_TIME * 100).await;
        assert!(open.open(EVE).is_none(), "a call was cut short");
        // The third connection becomes idle now, and the second a little later.
        let (first, second) = (calls.next(), calls.next());
        drop(calls.next());
        advance(MIN_IDLE_TIME / 2).await;
        drop(second);
        assert!(open.open(EVE).is_none(), "idle for too short a time");
        advance(MIN_IDLE_TIME / 2).await;
        let newest = open.open(EVE).unwrap();
        assert_eq!(eves.iter().position(is_evicted), Some(2));
        assert!(open.open(EVE).is_none());
        advance(MIN_IDLE_TIME / 2).await;
        let _newer = open.open(EVE).unwrap();
        assert!(is_evicted(&eves[1]) && !is_evicted(&newest) && !is_evicted(&other));
        // An evicted connection does not count, whenever it closes.
        drop(eves);
        assert_eq!(fill(&open, EVE).len(), MAX_PER_USER - 2);
        drop(first);
    }

    /// Watches of a peer, each over a connection of its own, as many as the limit allows.
    fn watches(open: &Connections, peer: Peer) -> Vec<(Slot, Call)> {
        std::iter::from_fn(|| {
            let slot = open.open(peer)?;
            let call = watch(&slot).ok()?;
            Some((slot, call))
        })
        .collect()
    }

    #[tokio::test(start_paused = true)]
    async fn watches_leave_slots_for_control_calls() {
        for (peer, limit) in
            [(EVE, MAX_PER_USER), (Peer::Privileged, MAX_CONNECTIONS), (Peer::Unknown, MAX_CONNECTIONS)]
        {
            let open = Connections::default();
            let mut watched = watches(&open, peer);
            assert_eq!(watched.len(), limit - RESERVED_FOR_CONTROL, "{peer:?}");
            let others = fill(&open, peer);
            assert_eq!(others.len(), RESERVED_FOR_CONTROL, "{peer:?}");
            assert_eq!(watch(&others[0]).unwrap_err().0, limit - RESERVED_FOR_CONTROL);
            // A second watch over the same connection is not limited.
            let second = watch(&watched[0].0).unwrap();
            let (slot, first) = watched.remove(0);
            drop(first);
            assert!(watch(&others[0]).is_err(), "the second watch is still open");
            drop(second);
            assert!(watch(&others[0]).is_ok());
            drop(slot);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn watches_of_several_users_leave_slots_for_others() {
        let open = Connections::default();
        let users = [1001, 1002, 1003, 1004].map(|uid| watches(&open, Peer::User(uid)));
        assert_eq!(users.each_ref().map(Vec::len), [12, 12, 12, 8]);
        assert!(open.open(Peer::User(1005)).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn root_evicts_idle_connections() {
        let open = Connections::default();
        let (roots, eves) = (fill(&open, Peer::Privileged), fill(&open, EVE));
        assert_eq!(
            (roots.len(), eves.len()),
            (MAX_CONNECTIONS, MAX_PER_USER),
            "root's do not count for users"
        );
        let _calls: Vec<_> = roots.iter().map(call).collect();
        assert!(open.open(Peer::Privileged).is_none());
        advance(MIN_IDLE_TIME).await;
        assert!(open.open(Peer::Privileged).is_some());
        assert_eq!(eves.iter().filter(|slot| is_evicted(slot)).count(), 1);
    }
}
