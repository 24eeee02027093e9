//! The check of `guard`, before a drain is requested.
//!
//! Two drains can be each other's peers, and all drains of a process check their peers in parallel. A runner manager that this process drains is not
//! a healthy peer, regardless of its status. So after its check, a drain is added to those of this process in one step with a second look: only if
//! enough of the peers that it found healthy are not drained by this process meanwhile.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt as _, stream::FuturesUnordered};
use tokio::time::{Instant, sleep, timeout_at};

use super::retry::Retry;
use crate::client::{ClientError, RunnerStatus, Wrapper};
use parking_lot::Mutex;

/// The time limit for one peer, including retries.
pub(crate) const PEER_LIMIT: Duration = Duration::from_secs(30);
/// The default number of attempts for one peer.
pub(crate) const PEER_ATTEMPTS: u32 = 3;

/// The drains of one process.
#[derive(Debug, Default)]
pub struct Drains {
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
        self.add(manager, &mut self.under_way.lock())
    }

    /// As [`Self::begin`], if this process drains at most as many of these peers that `min_healthy` remain.
    fn begin_beside(&self, manager: &str, peers: &[&str], min_healthy: usize) -> Option<DrainInProgress> {
        let mut under_way = self.under_way.lock();
        let left = peers.iter().filter(|peer| !under_way.contains_key(**peer)).count();
        (left >= min_healthy).then(|| self.add(manager, &mut under_way))
    }

    fn add(&self, manager: &str, under_way: &mut BTreeMap<String, usize>) -> DrainInProgress {
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
    /// Checks the peers. After a success, the manager is one that this process drains.
    fn check(&self, deadline: Instant) -> impl Future<Output = Result<(), TooFewPeers>> + Send;
}

/// A drain without `guard`.
#[derive(Debug, Clone, Copy)]
pub struct WithoutPeers;

impl PeerCheck for WithoutPeers {
    async fn check(&self, _: Instant) -> Result<(), TooFewPeers> {
        Ok(())
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
    /// Set by a successful check.
    pub under_way: Mutex<Option<DrainInProgress>>,
}

impl<W: Wrapper> PeerCheck for WithPeers<'_, W> {
    async fn check(&self, deadline: Instant) -> Result<(), TooFewPeers> {
        let deadline = deadline.min(Instant::now() + PEER_LIMIT);
        loop {
            let healthy = self.healthy(deadline).await?;
            if let Some(began) = self.drains.begin_beside(&self.identity, &healthy, self.min_healthy) {
                *self.under_way.lock() = Some(began);
                return Ok(());
            }
        }
    }
}

impl<W: Wrapper> WithPeers<'_, W> {
    /// Checks all peers in parallel, until enough are healthy. Returns their identities.
    async fn healthy(&self, deadline: Instant) -> Result<Vec<&str>, TooFewPeers> {
        let (mut healthy, mut unhealthy, mut identities) = (Vec::new(), Vec::new(), BTreeSet::new());
        let mut checks = FuturesUnordered::new();
        for (key, peer) in &self.peers {
            // An invalid entry has no identity.
            if peer.wrapper.is_ok() && peer.identity == self.identity {
                unhealthy.push((key.clone(), PeerProblem::Itself));
            } else if peer.wrapper.is_ok() && !identities.insert(&peer.identity) {
                unhealthy.push((key.clone(), PeerProblem::Duplicate));
            } else {
                checks.push(async move { (key, peer, self.check_peer(peer, deadline).await) });
            }
        }
        while healthy.len() < self.min_healthy {
            match checks.next().await {
                Some((_, peer, Ok(()))) => healthy.push(peer.identity.as_str()),
                Some((key, _, Err(problem))) => unhealthy.push((key.clone(), problem)),
                None => {
                    unhealthy.sort_by(|(one, _), (other, _)| one.cmp(other));
                    return Err(TooFewPeers { healthy: healthy.len(), wanted: self.min_healthy, unhealthy });
                }
            }
        }
        Ok(healthy)
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
