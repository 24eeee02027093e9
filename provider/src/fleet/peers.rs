//! Who may be drained now: the check of a drain's peers and the request to drain are one step.
//!
//! Two drains can be each other's peers. If both looked first and asked afterwards, each would find the other healthy, and both would be
//! drained. So a check holds the turn until the wrapper has accepted the request, for all drains of one process. A manager that this
//! process drains does not count as a healthy peer, whatever its wrapper says.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{StreamExt as _, stream::FuturesUnordered};
use tokio::{
    sync::{Mutex as PeerCheckLock, OwnedMutexGuard},
    time::{Instant, sleep, timeout_at},
};

use super::retry::Retry;
use crate::client::{ClientError, RunnerStatus, Wrapper};

/// How long a peer may take to answer, its retries included.
const PEER_LIMIT: Duration = Duration::from_secs(30);
/// Attempts for one peer, unless `retry` says otherwise.
const PEER_ATTEMPTS: u32 = 3;

/// The drains of one process.
#[derive(Debug, Default)]
pub struct Drains {
    peer_check: Arc<PeerCheckLock<()>>,
    /// How often each manager is being drained, by what identifies it.
    under_way: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl Drains {
    /// A new run begins: what the last one drained counts by its wrapper's word again.
    pub fn reset(&self) {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// This process drains the manager from now on.
    pub fn begin(&self, manager: &str) -> DrainInProgress {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        *under_way.entry(manager.to_owned()).or_default() += 1;
        DrainInProgress {
            all: Arc::clone(&self.under_way),
            manager: manager.to_owned(),
            keeps_counted: false,
        }
    }

    fn is_under_way(&self, manager: &str) -> bool {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner).contains_key(manager)
    }
}

/// A drain that this process has begun. Dropping it takes that back, unless it [stays counted](Self::keep_counted).
#[derive(Debug)]
pub struct DrainInProgress {
    all: Arc<Mutex<BTreeMap<String, usize>>>,
    manager: String,
    keeps_counted: bool,
}

impl DrainInProgress {
    /// The shutdown was requested, or may have been: the manager does not count as healthy until the end of the run.
    pub fn keep_counted(&mut self) {
        self.keeps_counted = true;
    }
}

impl Drop for DrainInProgress {
    fn drop(&mut self) {
        if self.keeps_counted {
            return;
        }
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = all.get_mut(&self.manager) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.manager);
            }
        }
    }
}

/// Decides, just before the first request, whether a running runner may be drained.
pub trait PeerCheck: Sync {
    /// Waits for the turn and checks. The permit is held until the request was answered.
    fn enter(&self, deadline: Instant) -> impl Future<Output = Result<Permit, TooFewPeers>> + Send;
}

/// The right to make the request.
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
    /// The others, by key.
    pub unhealthy: Vec<(String, PeerProblem)>,
}

/// Why a peer does not count as healthy.
#[derive(Debug)]
pub enum PeerProblem {
    /// This process drains it, too.
    DrainedHere,
    /// Its wrapper was asked to drain it, under this id.
    AskedToDrain(String),
    /// It does not run.
    Status(RunnerStatus),
    /// It was not reached.
    Unreached(ClientError),
    NoAnswer(Duration),
    /// Its entry cannot be used.
    Invalid(String),
}

/// A peer: what identifies it among the drains of this process, and its wrapper.
#[derive(Debug)]
pub(crate) struct Peer<W> {
    pub identity: String,
    pub wrapper: Result<W, String>,
}

/// A drain with `guard`.
#[derive(Debug)]
pub(crate) struct WithPeers<'a, W> {
    pub drains: &'a Drains,
    /// What identifies the manager that is to be drained.
    pub identity: String,
    pub peers: BTreeMap<String, Peer<W>>,
    pub min_healthy: usize,
    pub retry: Retry,
    /// Filled when the check has passed.
    pub under_way: Mutex<Option<DrainInProgress>>,
}

impl<W: Wrapper> PeerCheck for WithPeers<'_, W> {
    async fn enter(&self, deadline: Instant) -> Result<Permit, TooFewPeers> {
        let lock = Arc::clone(&self.drains.peer_check).lock_owned().await;
        self.check(deadline).await?;
        let began = self.drains.begin(&self.identity);
        *self.under_way.lock().unwrap_or_else(PoisonError::into_inner) = Some(began);
        Ok(Permit { _lock: Some(lock) })
    }
}

impl<W: Wrapper> WithPeers<'_, W> {
    /// Checks all peers at the same time, and stops as soon as enough are healthy.
    async fn check(&self, deadline: Instant) -> Result<(), TooFewPeers> {
        let deadline = deadline.min(Instant::now() + PEER_LIMIT);
        let mut checks: FuturesUnordered<_> = self
            .peers
            .iter()
            .map(|(key, peer)| async move { (key.clone(), self.check_peer(peer, deadline).await) })
            .collect();
        let (mut healthy, mut unhealthy) = (0, Vec::new());
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

    /// Whether a peer is healthy. A call that fails is repeated.
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
