//! SSH sessions that are shared: one for each [`SessionKey`].

use std::{
    collections::HashMap,
    ops::Deref,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, Shared, WeakShared},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::transport::{
    error::TransportError,
    ssh::{Session, SessionKey},
};

/// How long a session stays after its last user. A host that boots is asked again and again, and each handshake costs it 30 ms.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);

/// The sessions that are open or being opened. Dropping it ends those that nobody uses.
#[derive(Debug)]
pub(crate) struct SessionPool {
    sessions: Mutex<Sessions>,
    closing: CancellationToken,
    _close: DropGuard,
}

#[derive(Debug, Default)]
struct Sessions {
    entries: HashMap<SessionKey, Entry>,
    serial: u64,
}

type Connecting = BoxFuture<'static, Result<Arc<Session>, TransportError>>;

#[derive(Debug)]
enum Entry {
    /// Everybody who asks meanwhile waits for the same attempt, and shares its failure. It ends when nobody waits for it any more.
    Connecting(u64, WeakShared<Connecting>),
    Open(Weak<Session>),
}

impl Default for SessionPool {
    fn default() -> Self {
        let closing = CancellationToken::new();
        Self { sessions: Mutex::default(), _close: closing.clone().drop_guard(), closing }
    }
}

impl SessionPool {
    /// A session that is open already.
    pub(crate) fn open_session(&self, key: &SessionKey) -> Option<SessionRef> {
        match self.lock().entries.get(key)? {
            Entry::Open(session) => session.upgrade().filter(|session| !session.is_closed()),
            Entry::Connecting(..) => None,
        }
        .map(|session| self.lease(session))
    }

    /// The session of this key: the open one, the one being opened, or a new one that `connect` makes.
    pub(crate) async fn session(
        &self,
        key: &SessionKey,
        connect: impl FnOnce() -> Connecting,
    ) -> Result<SessionRef, TransportError> {
        if let Some(lease) = self.open_session(key) {
            return Ok(lease);
        }
        let (serial, attempt) = self.join_or_start(key, connect);
        let result = attempt.await;
        let mut sessions = self.lock();
        let is_ours = |entry: &Entry| matches!(entry, Entry::Connecting(it, _) if *it == serial);
        if sessions.entries.get(key).is_some_and(is_ours) {
            match &result {
                Ok(session) => {
                    sessions.entries.insert(key.clone(), Entry::Open(Arc::downgrade(session)));
                }
                Err(_) => {
                    sessions.entries.remove(key);
                }
            }
        }
        drop(sessions);
        result.map(|session| self.lease(session))
    }

    fn join_or_start(
        &self,
        key: &SessionKey,
        connect: impl FnOnce() -> Connecting,
    ) -> (u64, Shared<Connecting>) {
        let mut sessions = self.lock();
        if let Some(Entry::Connecting(serial, attempt)) = sessions.entries.get(key)
            && let Some(attempt) = attempt.upgrade()
        {
            return (*serial, attempt);
        }
        sessions.entries.retain(|_, entry| entry.is_of_use());
        sessions.serial += 1;
        let (serial, attempt) = (sessions.serial, connect().shared());
        if let Some(weak) = attempt.downgrade() {
            sessions.entries.insert(key.clone(), Entry::Connecting(serial, weak));
        }
        (serial, attempt)
    }

    fn lease(&self, session: Arc<Session>) -> SessionRef {
        SessionRef { session, closing: self.closing.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn is_of_use(&self) -> bool {
        match self {
            Self::Connecting(_, attempt) => attempt.upgrade().is_some(),
            Self::Open(session) => session.upgrade().is_some_and(|session| !session.is_closed()),
        }
    }
}

/// The use of a session, which is settled with it at the latest. It stays open for a moment after the last lease is dropped.
#[derive(Debug)]
pub(crate) struct SessionRef {
    session: Arc<Session>,
    closing: CancellationToken,
}

impl SessionRef {
    /// The session itself, for one that it carries.
    pub(crate) fn shared(&self) -> Arc<Session> {
        Arc::clone(&self.session)
    }
}

impl Deref for SessionRef {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

impl Drop for SessionRef {
    fn drop(&mut self) {
        self.session.release_permit();
        if self.session.is_closed() || self.closing.is_cancelled() {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (session, closing) = (Arc::clone(&self.session), self.closing.clone());
            runtime.spawn(async move {
                // The end of the wait is all that matters; which one it was does not.
                let _ = tokio::time::timeout(IDLE_TIMEOUT, closing.cancelled()).await;
                drop(session);
            });
        }
    }
}
