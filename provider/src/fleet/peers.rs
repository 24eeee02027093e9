//! The check of `guard`, before a drain is requested.
//!
//! Two drains can be each other's peers, and all drains of a process check their peers in parallel. A runner manager that this process drains is not
//! a healthy peer, regardless of its status. So after its check, a drain is added to those of this process in one step with a second look: only if
//! enough of the peers that it found healthy are not drained by this process meanwhile.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    time::Duration,
};

use futures::{StreamExt as _, stream::FuturesUnordered};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout_at};

use super::retry::Retry;
use crate::{
    client::{ClientError, RunnerStatus, Wrapper},
    manager::{InvalidManager, WrapperIdentity},
    run::{DrainUnderWay, Run},
};

/// The time limit for one peer, including retries.
pub(crate) const PEER_LIMIT: Duration = Duration::from_secs(30);
/// The default number of attempts for one peer.
pub(crate) const PEER_ATTEMPTS: u32 = 3;

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

/// A peer, or why its entry cannot be used.
pub(crate) type Peer<W> = Result<(WrapperIdentity, W), InvalidManager>;

/// A drain with `guard`.
#[derive(Debug)]
pub(crate) struct WithPeers<'a, W> {
    pub run: &'a Run,
    /// The runner manager to drain.
    pub manager: WrapperIdentity,
    pub peers: &'a BTreeMap<String, Peer<W>>,
    pub min_healthy: usize,
    pub retry: Retry,
    /// Set by a successful check.
    pub under_way: Mutex<Option<DrainUnderWay>>,
}

impl<W: Wrapper> PeerCheck for WithPeers<'_, W> {
    async fn check(&self, deadline: Instant) -> Result<(), TooFewPeers> {
        let deadline = deadline.min(Instant::now() + PEER_LIMIT);
        loop {
            let healthy = self.healthy(deadline).await?;
            if let Some(began) = self.run.begin_drain_beside(&self.manager, &healthy, self.min_healthy) {
                *self.under_way.lock() = Some(began);
                return Ok(());
            }
        }
    }
}

impl<W: Wrapper> WithPeers<'_, W> {
    /// Checks all peers in parallel, until enough are healthy. Returns their identities.
    async fn healthy(&self, deadline: Instant) -> Result<Vec<&WrapperIdentity>, TooFewPeers> {
        let (mut healthy, mut unhealthy, mut identities) = (Vec::new(), Vec::new(), BTreeSet::new());
        let mut checks = FuturesUnordered::new();
        for (key, peer) in self.peers {
            match peer {
                Err(invalid) => unhealthy.push((key.clone(), PeerProblem::Invalid(invalid.to_string()))),
                Ok((peer, _)) if *peer == self.manager => unhealthy.push((key.clone(), PeerProblem::Itself)),
                Ok((peer, _)) if !identities.insert(peer) => {
                    unhealthy.push((key.clone(), PeerProblem::Duplicate));
                }
                Ok((peer, wrapper)) => {
                    checks.push(async move { (key, peer, self.check_peer(peer, wrapper, deadline).await) });
                }
            }
        }
        while healthy.len() < self.min_healthy {
            match checks.next().await {
                Some((_, peer, Ok(()))) => healthy.push(peer),
                Some((key, peer, Err(problem))) => {
                    // Its drain may have begun while its status was read.
                    let is_drained = self.run.is_draining(peer);
                    unhealthy
                        .push((key.clone(), if is_drained { PeerProblem::DrainedHere } else { problem }));
                }
                None => {
                    unhealthy.sort_by(|(one, _), (other, _)| one.cmp(other));
                    return Err(TooFewPeers { healthy: healthy.len(), wanted: self.min_healthy, unhealthy });
                }
            }
        }
        Ok(healthy)
    }

    /// Whether a peer is healthy. Retries failed calls.
    async fn check_peer(
        &self,
        peer: &WrapperIdentity,
        wrapper: &W,
        deadline: Instant,
    ) -> Result<(), PeerProblem> {
        if self.run.is_draining(peer) {
            return Err(PeerProblem::DrainedHere);
        }
        let wrapper = wrapper.until(deadline);
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
