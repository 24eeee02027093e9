//! The check of `guard`: peers are checked and the drain is requested in one step.
//!
//! Two drains can be each other's peers. If both checked before one of them requests its drain, both would find the other one healthy, and
//! both would be drained. So a check holds a lock until the wrapper has accepted the request, for all drains of one process. A runner
//! manager that this process drains is not a healthy peer, regardless of its status.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt as _, stream::FuturesUnordered};
use tokio::{
    sync::{Mutex as PeerCheckLock, OwnedMutexGuard},
    time::{Instant, sleep, timeout_at},
};

use super::retry::Retry;
use crate::client::{ClientError, RunnerStatus, Wrapper};
use crate::mutex::Mutex;

/// The time limit for one peer, including retries.
pub(crate) const PEER_LIMIT: Duration = Duration::from_secs(30);
/// The default number of attempts for one peer.
pub(crate) const PEER_ATTEMPTS: u32 = 3;

/// The drains of one process.
#[derive(Debug, Default)]
pub struct Drains {
    peer_check: Arc<PeerCheckLock<()>>,
    /// The number of drains of each runner manager, by its identity.
    under_way: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl Drains {
    /// A new run starts: the drains of the previous one do not count any more.
    pub fn reset(&self) {
        self.under_way.lock().clear();
    }

    /// This process starts to drain the runner manager.
    pub fn begin(&self, manager: &str) -> DrainInProgress {
        let mut under_way = self.under_way.lock();
        *under_way.entry(manager.to_owned()).or_default() += 1;
        DrainInProgress {
            all: Arc::clone(&self.under_way),
            manager: manager.to_owned(),
            keeps_counted: false,
        }
    }

    fn is_under_way(&self, manager: &str) -> bool {
        self.under_way.lock().contains_key(manager)
    }
}

/// A drain of this process. Dropping it removes it, unless it [stays counted](Self::keep_counted).
#[derive(Debug)]
pub struct DrainInProgress {
    all: Arc<Mutex<BTreeMap<String, usize>>>,
    manager: String,
    keeps_counted: bool,
}

impl DrainInProgress {
    /// The shutdown was requested, or may have been: the runner manager is not healthy until the end of the run.
    pub fn keep_counted(&mut self) {
        self.keeps_counted = true;
    }
}

impl Drop for DrainInProgress {
    fn drop(&mut self) {
        if self.keeps_counted {
            return;
        }
        let mut all = self.all.lock();
        if let Some(count) = all.get_mut(&self.manager) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.manager);
            }
        }
    }
}

/// Decides, before the first request, whether a running runner may be drained.
pub trait PeerCheck: Sync {
    /// Waits for other checks, then checks the peers. The permit must be held until the response to the request.
    fn enter(&self, deadline: Instant) -> impl Future<Output = Result<Permit, TooFewPeers>> + Send;
}

/// The permission to request a drain.
#[derive(Debug, Default)]
pub struct Permit {
    _lock: Option<OwnedMutexGuard<()>>,
}

/// A drain without `guard`.
#[derive(Debug, Clone, Copy)]
pub struct WithoutPeers;

impl PeerCheck for WithoutPeers {
    async fn enter(&self, _: Instant) -> Result<Permit, TooFewPeers> {
        Ok(Permit::default())
    }
}

/// Too few peers are healthy.
#[derive(Debug)]
pub struct TooFewPeers {
    pub healthy: usize,
    pub wanted: usize,
    /// The other peers, by key.
    pub unhealthy: Vec<(String, PeerProblem)>,
}

/// Why a peer is not healthy.
#[derive(Debug)]
pub enum PeerProblem {
    /// It is the runner manager that is to be drained.
    Itself,
    /// It is the same runner manager as that of another key.
    Duplicate,
    /// This process drains it.
    DrainedHere,
    /// A drain with this id was requested.
    AskedToDrain(String),
    Status(RunnerStatus),
    Unreached(ClientError),
    NoAnswer(Duration),
    /// Its entry is invalid.
    Invalid(String),
}

/// A peer. `identity` identifies it among the drains of this process.
#[derive(Debug)]
pub(crate) struct Peer<W> {
    pub identity: String,
    pub wrapper: Result<W, String>,
}

/// A drain with `guard`.
#[derive(Debug)]
pub(crate) struct WithPeers<'a, W> {
    pub drains: &'a Drains,
    /// The identity of the runner manager to drain.
    pub identity: String,
    pub peers: BTreeMap<String, Peer<W>>,
    pub min_healthy: usize,
    pub retry: Retry,
    /// Set after a successful check.
    pub under_way: Mutex<Option<DrainInProgress>>,
}

impl<W: Wrapper> PeerCheck for WithPeers<'_, W> {
    async fn enter(&self, deadline: Instant) -> Result<Permit, TooFewPeers> {
        let lock = Arc::clone(&self.drains.peer_check).lock_owned().await;
        self.check(deadline).await?;
        let began = self.drains.begin(&self.identity);
        *self.under_way.lock() = Some(began);
        Ok(Permit { _lock: Some(lock) })
    }
}

impl<W: Wrapper> WithPeers<'_, W> {
    /// Checks all peers in parallel, until enough are healthy.
    async fn check(&self, deadline: Instant) -> Result<(), TooFewPeers> {
        let deadline = deadline.min(Instant::now() + PEER_LIMIT);
        let (mut healthy, mut unhealthy, mut identities) = (0, Vec::new(), BTreeSet::new());
        let mut checks = FuturesUnordered::new();
        for (key, peer) in &self.peers {
            // An invalid entry has no identity.
            if peer.wrapper.is_ok() && peer.identity == self.identity {
                unhealthy.push((key.clone(), PeerProblem::Itself));
            } else if peer.wrapper.is_ok() && !identities.insert(&peer.identity) {
                unhealthy.push((key.clone(), PeerProblem::Duplicate));
            } else {
                checks.push(async move { (key.clone(), self.check_peer(peer, deadline).await) });
            }
        }
        while healthy < self.min_healthy {
            match checks.next().await {
                Some((_, Ok(()))) => healthy += 1,
                Some((key, Err(problem))) => unhealthy.push((key, problem)),
                None => {
                    unhealthy.sort_by(|(one, _), (other, _)| one.cmp(other));
                    return Err(TooFewPeers { healthy, wanted: self.min_healthy, unhealthy });
                }
            }
        }
        Ok(())
    }

    /// Whether a peer is healthy. Retries failed calls.
    async fn check_peer(&self, peer: &Peer<W>, deadline: Instant) -> Result<(), PeerProblem> {
        if self.drains.is_under_way(&peer.identity) {
            return Err(PeerProblem::DrainedHere);
        }
        let wrapper =
            peer.wrapper.as_ref().map_err(|problem| PeerProblem::Invalid(problem.clone()))?.until(deadline);
        let attempts = self.retry.attempts.unwrap_or(PEER_ATTEMPTS);
        let mut backoff = self.retry.backoff();
        let mut failures = 0;
        let mut lost = None;
        loop {
            match timeout_at(deadline, wrapper.read_status()).await {
                Ok(Ok(snapshot)) => {
                    let drain = snapshot.detail.as_deref().and_then(|detail| detail.drain.as_ref());
                    return match (snapshot.report.status, drain) {
                        (RunnerStatus::Running, None) => Ok(()),
                        (RunnerStatus::Running, Some(drain)) => {
                            Err(PeerProblem::AskedToDrain(drain.id.clone()))
                        }
                        (status, _) => Err(PeerProblem::Status(status)),
                    };
                }
                Ok(Err(error)) => {
                    failures += 1;
                    if !error.retryable() || failures >= attempts || Instant::now() >= deadline {
                        return Err(PeerProblem::Unreached(error));
                    }
                    lost = Some(error);
                    sleep(backoff.delay().min(deadline.saturating_duration_since(Instant::now()))).await;
                }
                Err(_) => return Err(lost.map_or(PeerProblem::NoAnswer(PEER_LIMIT), PeerProblem::Unreached)),
            }
        }
    }
}

#[cfg(test)]
mod tests;
