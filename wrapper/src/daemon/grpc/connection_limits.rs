//! The places of one listener: who has them, and who gives one up when they are short.
//!
//! The kernel names the user at the other end of a unix socket, so none of them can take the places of the others: each has a share, and some
//! places are only for root and the wrapper's own user. A connection over which nothing is asked for long gives its place up when it is
//! wanted. One with a call keeps it: a watch lasts for days. Nobody is named behind TCP, where all share all places.
//!
//! Watches cannot take all places that a user can have: one more is refused, so that the same user can still stop the runner.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Connections at one time; a deployment needs one.
pub(super) const ALL: usize = 64;

/// Those of them that one user may have.
const EACH: usize = 16;

/// Those of them that only root and the wrapper's own user may have.
const KEPT: usize = 16;

/// Those of a user's places, and of all, that connections with a watch cannot have.
const CONTROL: usize = 4;

/// How long nothing is asked over a connection that has to make room. A client that asks now and then asks more often.
const IDLE: Duration = Duration::from_secs(10);

/// Who is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Guest {
    /// Root, or the wrapper's own user.
    Host,
    User(u32),
    /// Nobody is named.
    Unknown,
}

/// The places of one listener.
#[derive(Clone, Debug, Default)]
pub(super) struct Places(Arc<Mutex<Vec<Arc<Seat>>>>);

/// A place, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    seat: Arc<Seat>,
    places: Places,
}

/// What is known of one connection.
#[derive(Debug)]
pub(super) struct Seat {
    guest: Guest,
    calls: Mutex<Calls>,
    leave: CancellationToken,
}

#[derive(Debug)]
struct Calls {
    open: usize,
    /// Those of them that may last for days.
    watches: usize,
    /// When the last one ended, or the connection came.
    since: Instant,
}

/// A call that is open until this is dropped.
#[derive(Debug)]
pub(super) struct Call {
    seat: Arc<Seat>,
    is_watch: bool,
}

/// So many connections with watches are open that the last places would be taken.
#[derive(Debug)]
pub(super) struct TooManyWatches {
    pub(super) limit: usize,
}

impl Places {
    /// A place for `guest`, which another connection may have to leave. None when all that it could have are in use.
    pub(super) fn take(&self, guest: Guest) -> Option<Place> {
        let mut seats = lock(&self.0);
        let room = match guest {
            Guest::Host | Guest::Unknown => make_room(&mut seats, ALL, |_| true),
            Guest::User(_) => {
                make_room(&mut seats, EACH, |other| other == guest)
                    && make_room(&mut seats, ALL - KEPT, |other| other != Guest::Host)
            }
        };
        room.then(|| {
            let calls = Mutex::new(Calls { open: 0, watches: 0, since: Instant::now() });
            let seat = Arc::new(Seat { guest, calls, leave: CancellationToken::new() });
            seats.push(Arc::clone(&seat));
            Place { seat, places: self.clone() }
        })
    }

    /// A call of this connection that may last for days. The connection's other watches make no difference.
    pub(super) fn watch(&self, seat: &Arc<Seat>) -> Result<Call, TooManyWatches> {
        let seats = lock(&self.0);
        let others = |whom: &dyn Fn(Guest) -> bool| {
            let others = seats.iter().filter(|other| !Arc::ptr_eq(other, seat) && whom(other.guest));
            others.filter(|other| lock(&other.calls).watches > 0).count()
        };
        let within = |limit: usize, whom: &dyn Fn(Guest) -> bool| {
            let limit = limit - CONTROL;
            if others(whom) < limit { Ok(()) } else { Err(TooManyWatches { limit }) }
        };
        match seat.guest {
            Guest::Host | Guest::Unknown => within(ALL, &|_| true)?,
            Guest::User(_) => {
                within(EACH, &|other| other == seat.guest)?;
                within(ALL - KEPT, &|other| other != Guest::Host)?;
            }
        }
        let mut calls = lock(&seat.calls);
        calls.open += 1;
        calls.watches += 1;
        Ok(Call { seat: Arc::clone(seat), is_watch: true })
    }

    fn leave(&self, leaving: &Arc<Seat>) {
        lock(&self.0).retain(|seat| !Arc::ptr_eq(seat, leaving));
    }
}

/// Sees to it that fewer than `limit` of `whom` are there: the one without a call for longest has to leave.
fn make_room(seats: &mut Vec<Arc<Seat>>, limit: usize, whom: impl Fn(Guest) -> bool) -> bool {
    if seats.iter().filter(|seat| whom(seat.guest)).count() < limit {
        return true;
    }
    let idle = seats.iter().enumerate().filter(|(_, seat)| whom(seat.guest));
    let idle = idle.filter_map(|(at, seat)| Some((seat.idle_since()?, at)));
    match idle.min() {
        Some((since, at)) if since.elapsed() >= IDLE => {
            seats.remove(at).leave.cancel();
            true
        }
        _ => false,
    }
}

impl Place {
    pub(super) fn seat(&self) -> Arc<Seat> {
        Arc::clone(&self.seat)
    }

    pub(super) fn places(&self) -> Places {
        self.places.clone()
    }

    /// Comes when the place is wanted by another.
    pub(super) fn wanted(&self) -> WaitForCancellationFutureOwned {
        self.seat.leave.clone().cancelled_owned()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.leave(&self.seat);
    }
}

impl Seat {
    pub(super) fn call(self: &Arc<Self>) -> Call {
        lock(&self.calls).open += 1;
        Call { seat: Arc::clone(self), is_watch: false }
    }

    fn idle_since(&self) -> Option<Instant> {
        let calls = lock(&self.calls);
        (calls.open == 0).then_some(calls.since)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let mut calls = lock(&self.seat.calls);
        *calls = Calls {
            open: calls.open.saturating_sub(1),
            watches: calls.watches.saturating_sub(usize::from(self.is_watch)),
            since: Instant::now(),
        };
    }
}

/// Nothing that is done under these locks can leave them halfway.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const EVE: Guest = Guest::User(1001);

    fn fill(places: &Places, guest: Guest) -> Vec<Place> {
        std::iter::from_fn(|| places.take(guest)).collect()
    }

    fn is_wanted(place: &Place) -> bool {
        place.seat.leave.is_cancelled()
    }

    #[tokio::test(start_paused = true)]
    async fn one_user_gets_a_limited_share_of_slots() {
        let places = Places::default();
        let eves = fill(&places, EVE);
        assert_eq!(eves.len(), EACH);
        // Three of them leave what is kept for root, and a user who is not of them can have nothing.
        let (bobs, carols) = (fill(&places, Guest::User(1002)), fill(&places, Guest::User(1003)));
        assert_eq!((bobs.len(), carols.len()), (EACH, EACH));
        assert!(places.take(Guest::User(1004)).is_none());
        let hosts = fill(&places, Guest::Host);
        assert_eq!(hosts.len(), KEPT);
        assert_eq!(fill(&Places::default(), Guest::Host).len(), ALL);
        assert_eq!(fill(&Places::default(), Guest::Unknown).len(), ALL);
        drop(eves);
        assert!(places.take(Guest::User(1004)).is_some() && places.take(EVE).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connections_are_evicted_active_are_not() {
        let places = Places::default();
        let eves = fill(&places, EVE);
        let calls: Vec<_> = eves.iter().map(|place| place.seat().call()).collect();
        let other = places.take(Guest::User(1002)).unwrap();
        advance(IDLE * 100).await;
        assert!(places.take(EVE).is_none(), "a call was cut short");
        // The third asks nothing from now on, and the second a little later.
        let mut calls = calls.into_iter();
        let (first, second) = (calls.next(), calls.next());
        drop(calls.next());
        advance(IDLE / 2).await;
        drop(second);
        assert!(places.take(EVE).is_none(), "it has asked just now");
        advance(IDLE / 2).await;
        let newest = places.take(EVE).unwrap();
        assert_eq!(eves.iter().position(is_wanted), Some(2));
        assert!(places.take(EVE).is_none());
        advance(IDLE / 2).await;
        let _newer = places.take(EVE).unwrap();
        assert!(is_wanted(&eves[1]) && !is_wanted(&newest) && !is_wanted(&other));
        // What has left counts no more, whenever it is really gone.
        drop(eves);
        assert_eq!(fill(&places, EVE).len(), EACH - 2);
        drop(first);
    }

    /// So many watches of a guest, each over a connection of its own.
    fn watches(places: &Places, guest: Guest) -> Vec<(Place, Call)> {
        std::iter::from_fn(|| {
            let place = places.take(guest)?;
            let call = places.watch(&place.seat()).ok()?;
            Some((place, call))
        })
        .collect()
    }

    #[tokio::test(start_paused = true)]
    async fn watches_leave_slots_for_control_calls() {
        for (guest, most) in [(EVE, EACH), (Guest::Host, ALL), (Guest::Unknown, ALL)] {
            let places = Places::default();
            let mut open = watches(&places, guest);
            assert_eq!(open.len(), most - CONTROL, "{guest:?}");
            let others = fill(&places, guest);
            assert_eq!(others.len(), CONTROL, "{guest:?}");
            assert_eq!(places.watch(&others[0].seat()).unwrap_err().limit, most - CONTROL);
            // A second watch over the same connection takes no place.
            let second = places.watch(&open[0].0.seat()).unwrap();
            let (place, first) = open.remove(0);
            drop(first);
            assert!(places.watch(&others[0].seat()).is_err(), "the second goes on");
            drop(second);
            assert!(places.watch(&others[0].seat()).is_ok());
            drop(place);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn watches_of_several_users_leave_slots_for_others() {
        let places = Places::default();
        let users = [1001, 1002, 1003, 1004].map(|uid| watches(&places, Guest::User(uid)));
        assert_eq!(users.each_ref().map(Vec::len), [12, 12, 12, 8]);
        assert!(places.take(Guest::User(1005)).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn root_evicts_idle_connections() {
        let places = Places::default();
        let (hosts, eves) = (fill(&places, Guest::Host), fill(&places, EVE));
        assert_eq!((hosts.len(), eves.len()), (ALL, EACH), "what root has is not a user's loss");
        let _calls: Vec<_> = hosts.iter().map(|place| place.seat().call()).collect();
        assert!(places.take(Guest::Host).is_none());
        advance(IDLE).await;
        assert!(places.take(Guest::Host).is_some());
        assert_eq!(eves.iter().filter(|place| is_wanted(place)).count(), 1);
    }
}
