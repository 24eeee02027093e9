//! Shared SSH sessions: one for each [`SessionKey`].

use std::{
    collections::HashMap,
    ops::Deref,
    sync::{Arc, Weak},
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, WeakShared},
};
use parking_lot::Mutex;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    error::TransportError,
    session::{Session, SessionKey},
};

/// An unused session stays open for this time: a host that boots is called repeatedly, and each handshake costs it 30 ms.
const SESSION_IDLE_TIMEOUT: Duration = Duration::from_secs(15);

/// The sessions that are open or being opened. Dropping the pool closes the unused ones.
#[derive(Debug)]
pub(crate) struct SessionPool {
    entries: Mutex<HashMap<SessionKey, Entry>>,
    closing: CancellationToken,
    _close: DropGuard,
}

/// An attempt to open a session.
pub(crate) type Connecting = BoxFuture<'static, Result<Arc<Session>, TransportError>>;

#[derive(Debug)]
enum Entry {
    /// One attempt for all callers, which share its failure. It ends when no caller waits for it any more.
    Connecting(WeakShared<Connecting>),
    Open(Weak<Session>),
}

impl Default for SessionPool {
    fn default() -> Self {
        let closing = CancellationToken::new();
        Self { entries: Mutex::default(), _close: closing.clone().drop_guard(), closing }
    }
}

impl SessionPool {
    /// The session of this key: the open one, the one being opened, or a new one from `connect`.
    pub(crate) async fn session(
        &self,
        key: &SessionKey,
        connect: impl FnOnce() -> Connecting,
    ) -> Result<SessionRef, TransportError> {
        let reference = |session, reused| SessionRef { session, reused, closing: self.closing.clone() };
        let attempt = {
            let mut entries = self.entries.lock();
            let attempt = match entries.get(key) {
                Some(Entry::Open(session)) => match session.upgrade().filter(|it| !it.is_closed()) {
                    Some(session) => return Ok(reference(session, true)),
                    None => None,
                },
                Some(Entry::Connecting(attempt)) => attempt.upgrade(),
                None => None,
            };
            attempt.unwrap_or_else(|| {
                entries.retain(|_, entry| entry.is_usable());
                let attempt = connect().shared();
                if let Some(attempt) = attempt.downgrade() {
                    entries.insert(key.clone(), Entry::Connecting(attempt));
                }
                attempt
            })
        };
        let result = attempt.clone().await;
        let mut entries = self.entries.lock();
        // Another caller of the same attempt may have replaced the entry, and a later attempt that one.
        if matches!(entries.get(key), Some(Entry::Connecting(it)) if it.upgrade().is_some_and(|it| it.ptr_eq(&attempt)))
        {
            match &result {
                Ok(session) => entries.insert(key.clone(), Entry::Open(Arc::downgrade(session))),
                Err(_) => entries.remove(key),
            };
        }
        drop(entries);
        result.map(|session| reference(session, false))
    }

    /// The server refused a Unix socket over this session: the next caller logs in again. Tunnels of the session stay open.
    ///
    /// sshd opens a socket with the groups that the user had at the login. On a host that boots, the user is often added to the group of the socket
    /// later, and a session from before then is refused until it ends.
    pub(crate) fn socket_refused(&self, key: &SessionKey, by: &SessionRef) {
        let mut entries = self.entries.lock();
        if matches!(entries.get(key), Some(Entry::Open(session)) if session.as_ptr() == Arc::as_ptr(&by.session))
        {
            entries.remove(key);
        }
    }
}

impl Entry {
    fn is_usable(&self) -> bool {
        match self {
            Self::Connecting(attempt) => attempt.upgrade().is_some(),
            Self::Open(session) => session.upgrade().is_some_and(|session| !session.is_closed()),
        }
    }
}

/// A user of a session. The session stays open for [`SESSION_IDLE_TIMEOUT`] after the last one is dropped.
#[derive(Debug)]
pub(crate) struct SessionRef {
    session: Arc<Session>,
    /// The session was open before.
    pub(crate) reused: bool,
    closing: CancellationToken,
}

impl SessionRef {
    /// The session as the parent of another session.
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
        if self.session.is_closed() || self.closing.is_cancelled() {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (session, closing) = (Arc::clone(&self.session), self.closing.clone());
            runtime.spawn(async move {
                let _ = tokio::time::timeout(SESSION_IDLE_TIMEOUT, closing.cancelled()).await;
                drop(session);
            });
        }
    }
}
