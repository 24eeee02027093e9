//! The number of open connections of a listener, in total and for each user of a unix socket.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::daemon::serve::requester::Requester;

/// Open connections of one listener; a deployment needs one.
const MAX_CONNECTIONS: usize = 48;

/// Open connections of one user on a unix socket, so that no user can lock out another one.
const MAX_OF_USER: usize = 16;

/// Further connections of root and of the wrapper's user: a user who has several UIDs (subordinate UIDs) cannot lock them out.
const MAX_PRIVILEGED: usize = 16;

/// The places of one listener.
#[derive(Debug)]
pub(super) struct Places {
    free: Arc<Semaphore>,
    privileged: Arc<Semaphore>,
    users: Arc<Users>,
}

/// The number of connections of each user.
#[derive(Debug, Default)]
struct Users(Mutex<HashMap<u32, usize>>);

/// The place of one connection, until this value is dropped.
#[derive(Debug)]
pub(super) struct Place {
    _permit: OwnedSemaphorePermit,
    _of_user: Option<OfUser>,
}

#[derive(Debug)]
struct OfUser {
    users: Arc<Users>,
    uid: u32,
}

impl Default for Places {
    fn default() -> Self {
        let semaphore = |places| Arc::new(Semaphore::new(places));
        Self {
            free: semaphore(MAX_CONNECTIONS),
            privileged: semaphore(MAX_PRIVILEGED),
            users: Arc::default(),
        }
    }
}

impl Places {
    /// A place for another connection of this client; `None` beyond the limits.
    pub(super) fn take(&self, requester: Requester) -> Option<Place> {
        let uid = match requester {
            Requester::Unix { uid, .. } => Some(uid),
            // These have no user.
            Requester::Tcp(_) | Requester::Signal(_) => None,
        };
        let is_privileged = requester.is_privileged();
        let of_user = uid.filter(|_| !is_privileged).map(|uid| self.users.take(uid));
        let of_user = match of_user {
            Some(None) => return None,
            Some(Some(())) => uid.map(|uid| OfUser { users: Arc::clone(&self.users), uid }),
            None => None,
        };
        let free = Arc::clone(&self.free).try_acquire_owned().ok();
        let permit =
            free.or_else(|| Arc::clone(&self.privileged).try_acquire_owned().ok().filter(|_| is_privileged))?;
        Some(Place { _permit: permit, _of_user: of_user })
    }
}

impl Users {
    /// Counts another connection of this user, up to the limit.
    fn take(&self, uid: u32) -> Option<()> {
        let mut users = self.lock();
        let count = users.entry(uid).or_default();
        (*count < MAX_OF_USER).then(|| *count += 1)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OfUser {
    fn drop(&mut self) {
        let mut users = self.users.lock();
        if let Some(count) = users.get_mut(&self.uid) {
            *count -= 1;
            if *count == 0 {
                users.remove(&self.uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unix(uid: u32) -> Requester {
        Requester::Unix { uid, gid: uid, pid: None }
    }

    fn tcp() -> Requester {
        Requester::Tcp("127.0.0.1:4711".parse().unwrap())
    }

    /// The clients come one after the other: how many connections each opens, and how many of them are accepted.
    #[test]
    fn connections_are_limited_for_each_user_and_in_total() {
        for (name, clients) in [
            ("one user", &[(unix(4242), 100, 16)][..]),
            ("another user", &[(unix(4242), 100, 16), (unix(4243), 10, 10)]),
            ("root", &[(unix(0), 100, 64)]),
            ("root after others", &[(unix(4242), 100, 16), (unix(0), 100, 48)]),
            (
                "many users",
                &[
                    (unix(4242), 100, 16),
                    (unix(4243), 100, 16),
                    (unix(4244), 100, 16),
                    (unix(4245), 100, 0),
                    (unix(0), 100, 16),
                ],
            ),
            ("TCP has no users", &[(tcp(), 100, 48)]),
        ] {
            let places = Places::default();
            let mut open = Vec::new();
            for (client, count, accepted) in clients {
                let taken: Vec<_> = (0..*count).filter_map(|_| places.take(*client)).collect();
                assert_eq!(taken.len(), *accepted, "{name}: {client:?}");
                open.extend(taken);
            }
            drop(open);
            assert!(places.users.lock().is_empty(), "{name}");
            assert_eq!(places.free.available_permits(), MAX_CONNECTIONS, "{name}");
        }
    }
}
