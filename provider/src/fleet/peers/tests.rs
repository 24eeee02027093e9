use std::sync::atomic::{AtomicUsize, Ordering};

use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    client::{DrainRequest, Snapshot, Start},
    fleet::{
        Failure, Reason,
        drain::{self, DrainPolicy, Mode, NotDrained, OnTimeout, OnUnreachable, Until},
        test_wrapper::{ScriptInput, Scripted, ScriptedFault, retry},
    },
};

type Script = fn(ScriptInput) -> Result<RunnerStatus, ScriptedFault>;

/// Runs until a drain is requested, then run for a minute. A call takes some time, as a real one does.
struct Host {
    wrapper: Scripted<Script>,
    reads: AtomicUsize,
}

impl Host {
    fn new(script: Script) -> Self {
        Self { wrapper: Scripted::new(script), reads: AtomicUsize::new(0) }
    }

    fn healthy() -> Self {
        Self::new(|input| {
            Ok(match input.graceful {
                None => RunnerStatus::Running,
                Some(since) if since.as_secs() < 60 => RunnerStatus::InShutdown,
                Some(_) => RunnerStatus::Stopped,
            })
        })
    }
}

impl Wrapper for &Host {
    fn until(&self, _: Instant) -> Self {
        self
    }

    async fn read_status(&self) -> Result<Snapshot, ClientError> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        let answer = (&self.wrapper).read_status().await;
        // The answer is old when it arrives.
        sleep(Duration::from_millis(50)).await;
        answer
    }

    async fn changed(&self) {
        (&self.wrapper).changed().await;
    }

    async fn drain(&self, request: &DrainRequest) -> Result<Snapshot, ClientError> {
        sleep(Duration::from_millis(50)).await;
        (&self.wrapper).drain(request).await
    }

    async fn cancel(&self, _: &str) -> Result<Option<Snapshot>, ClientError> {
        Ok(None)
    }

    async fn start(&self) -> Result<Start, ClientError> {
        (&self.wrapper).start().await
    }
}

/// Drains `name`, guarded by all other hosts.
async fn guarded(
    run: &Run,
    hosts: &[(&str, &Host)],
    name: &str,
    min_healthy: usize,
) -> Result<(), Failure<NotDrained>> {
    let own: &Host = hosts.iter().find(|(key, _)| *key == name).unwrap().1;
    let others = hosts.iter().filter(|(key, _)| *key != name);
    let peers = others.map(|&(key, host)| (key.to_owned(), peer(key, host))).collect();
    guarded_by(run, name, own, peers, min_healthy).await
}

fn peer<'a>(identity: &str, host: &'a Host) -> Peer<&'a Host> {
    Ok((WrapperIdentity::example(identity), host))
}

/// Drains `own`, whose identity is `name`, guarded by these peers.
async fn guarded_by(
    run: &Run,
    name: &str,
    own: &Host,
    peers: BTreeMap<String, Peer<&Host>>,
    min_healthy: usize,
) -> Result<(), Failure<NotDrained>> {
    let peer_check = WithPeers {
        run,
        manager: WrapperIdentity::example(name),
        peers: &peers,
        min_healthy,
        retry: retry(None),
        under_way: Mutex::default(),
    };
    let policy = DrainPolicy {
        until: Until::Exit,
        mode: Mode::Graceful,
        start: Instant::now(),
        timeout: Duration::from_secs(600),
        on_timeout: OnTimeout::Fail,
        on_unreachable: OnUnreachable::Fail,
        on_lost_jobs: crate::fleet::receipt::OnLostJobs::Warn,
        request: DrainRequest::default(),
        retry: retry(Some(3)),
    };
    let outcome = drain::run(name, &own, &policy, &peer_check, &CancellationToken::new()).await;
    if outcome.is_ok()
        && let Some(under_way) = &mut *peer_check.under_way.lock()
    {
        under_way.keep_counted();
    }
    outcome.map(drop)
}

fn refused(outcome: &Result<(), Failure<NotDrained>>) -> bool {
    matches!(outcome, Err(Failure { reason: Reason::Problem(NotDrained::TooFewPeers(_)), .. }))
}

/// The peers of a drain that was refused.
#[track_caller]
fn too_few(outcome: Result<(), Failure<NotDrained>>) -> TooFewPeers {
    match outcome {
        Err(Failure { reason: Reason::Problem(NotDrained::TooFewPeers(few)), .. }) => few,
        outcome => panic!("{outcome:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn one_of_two_mutually_guarded_run_is_refused() {
    let (run, one, two) = (Run::default(), Host::healthy(), Host::healthy());
    let hosts = [("one", &one), ("two", &two)];
    let (first, second) = tokio::join!(guarded(&run, &hosts, "one", 1), guarded(&run, &hosts, "two", 1));
    assert_eq!([&first, &second].map(refused).iter().filter(|it| **it).count(), 1, "{first:?} {second:?}");
    assert_eq!(one.wrapper.requests().0 + two.wrapper.requests().0, 1);
}

#[tokio::test(start_paused = true)]
async fn two_of_three_mutual_guards_drain_if_min_healthy_is_1() {
    let run = Run::default();
    let [one, two, three] = [(); 3].map(|()| Host::healthy());
    let hosts = [("one", &one), ("two", &two), ("three", &three)];
    let outcomes = tokio::join!(
        guarded(&run, &hosts, "one", 1),
        guarded(&run, &hosts, "two", 1),
        guarded(&run, &hosts, "three", 1)
    );
    let refusals = [&outcomes.0, &outcomes.1, &outcomes.2].map(refused);
    assert_eq!(refusals.iter().filter(|it| **it).count(), 1, "{outcomes:?}");
}

/// The response to the request was lost, and the peer is unhealthy since: the request may have been accepted.
#[tokio::test(start_paused = true)]
async fn refusal_after_lost_response_reports_possible_request() {
    let own = Host::new(|input| match input.graceful {
        // The call arrives, and its response does not.
        Some(since) if since.as_secs() < 1 => Err(ScriptedFault::Lost),
        _ => Ok(RunnerStatus::Running),
    });
    let other = Host::new(|input| {
        Ok(if input.elapsed.as_millis() < 200 { RunnerStatus::Running } else { RunnerStatus::Stopped })
    });
    let hosts = [("one", &own), ("two", &other)];
    let error = guarded(&Run::default(), &hosts, "one", 1).await.unwrap_err();
    assert_eq!(error.requested, drain::Requested::Perhaps);
    too_few(Err(error));
}

/// Another client's shutdown was joined without the check, and was then cancelled.
#[tokio::test(start_paused = true)]
async fn cancelled_joined_shutdown_is_repeated_only_with_peers() {
    let own = Host::new(|input| {
        Ok(if input.elapsed.as_secs() < 10 { RunnerStatus::InShutdown } else { RunnerStatus::Running })
    });
    let other = Host::new(|_| Ok(RunnerStatus::Stopped));
    let hosts = [("one", &own), ("two", &other)];
    let outcome = guarded(&Run::default(), &hosts, "one", 1).await;
    assert!(refused(&outcome), "{outcome:?}");
    assert_eq!(own.wrapper.requests(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn manager_is_not_its_own_peer_and_peers_count_once() {
    let (run, one, two) = (Run::default(), Host::healthy(), Host::healthy());
    // The map of all managers, as a configuration passes it.
    let all = BTreeMap::from([("a".to_owned(), peer("one", &one))]);
    let few = too_few(guarded_by(&run, "one", &one, all, 1).await);
    assert!(matches!(few.unhealthy[..], [(_, PeerProblem::Itself)]), "{few:?}");

    let twice = ["a", "b"].map(|key| (key.to_owned(), peer("two", &two))).into();
    let few = too_few(guarded_by(&run, "one", &one, twice, 2).await);
    assert!(few.healthy == 1 && matches!(few.unhealthy[..], [(_, PeerProblem::Duplicate)]), "{few:?}");
    assert_eq!(one.wrapper.requests(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn peer_drained_by_this_process_is_unhealthy() {
    // It reports `running` to the end, as one behind upstream's wrapper that forgot the request.
    let (run, one) = (Run::default(), Host::healthy());
    let two = Host::new(|_| Ok(RunnerStatus::Running));
    let hosts = [("one", &one), ("two", &two)];
    let under_way = run.begin_drain(&WrapperIdentity::example("two"));
    let TooFewPeers { healthy, wanted, unhealthy } = too_few(guarded(&run, &hosts, "one", 1).await);
    assert_eq!((healthy, wanted), (0, 1));
    assert!(
        matches!(unhealthy.as_slice(), [(key, PeerProblem::DrainedHere)] if key == "two"),
        "{unhealthy:?}"
    );

    // A drain that requested nothing takes that back.
    drop(under_way);
    assert!(guarded(&run, &hosts, "one", 1).await.is_ok());
}

/// Its status shows the drain, which another call of this process has requested.
#[tokio::test(start_paused = true)]
async fn peer_whose_drain_begins_during_its_check_is_drained_here() {
    let (run, one) = (Run::default(), Host::healthy());
    let two = Host::new(|_| Ok(RunnerStatus::InShutdown));
    let hosts = [("one", &one), ("two", &two)];
    let (outcome, _under_way) = tokio::join!(guarded(&run, &hosts, "one", 1), async {
        sleep(Duration::from_millis(20)).await;
        run.begin_drain(&WrapperIdentity::example("two"))
    });
    let few = too_few(outcome);
    assert!(matches!(few.unhealthy[..], [(_, PeerProblem::DrainedHere)]), "{few:?}");
}

#[tokio::test(start_paused = true)]
async fn peer_with_drain_request_is_unhealthy() {
    let mut snapshot = Snapshot::from(RunnerStatus::Running);
    snapshot.detail = Some(Box::new(crate::client::Detail {
        wrapper_version: "0.1.0".into(),
        boot_id: String::new(),
        process: String::new(),
        last_drain: None,
        cancelled: None,
        level: crate::client::Level::Polling,
        level_max: None,
        reasons: vec![],
        runner_version: None,
        pid: Some(1),
        started_at: None,
        jobs: None,
        oldest_job: None,
        shutting_down: false,
        drain: Some(crate::client::DrainInfo {
            until_deadline: None,
            id: "ci-7".into(),
            reason: String::new(),
            requested_by: String::new(),
            forceful: false,
            signalled: true,
            deadline: None,
            outcome: None,
            open_requests: None,
            waits_for: String::new(),
        }),
        evidence: crate::client::RunnerEvidence::default(),
        registrations: Vec::new(),
        exit: None,
    }));
    let wrapper = Scripted::new(move |_: ScriptInput| Ok::<_, ScriptedFault>(snapshot.clone()));
    let run = Run::default();
    let peers = BTreeMap::from([("two".to_owned(), Ok((WrapperIdentity::example("two"), &wrapper)))]);
    let guarded = WithPeers {
        run: &run,
        manager: WrapperIdentity::example("one"),
        peers: &peers,
        min_healthy: 1,
        retry: retry(None),
        under_way: Mutex::default(),
    };
    let refused = guarded.check(Instant::now() + Duration::from_secs(60)).await.unwrap_err();
    assert!(matches!(&refused.unhealthy[0].1, PeerProblem::AskedToDrain(id) if id == "ci-7"), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn peer_check_retries_once_and_names_unreachable_peer() {
    let (run, one) = (Run::default(), Host::healthy());
    let flaky = Host::new(|input| {
        if input.elapsed.as_millis() < 500 { Err(ScriptedFault::Down) } else { Ok(RunnerStatus::Running) }
    });
    assert!(guarded(&run, &[("one", &one), ("two", &flaky)], "one", 1).await.is_ok());
    assert_eq!(flaky.reads.load(Ordering::SeqCst), 2);

    let (other, gone) = (Host::healthy(), Host::new(|_| Err(ScriptedFault::Down)));
    let peers = too_few(guarded(&run, &[("other", &other), ("two", &gone)], "other", 1).await);
    assert!(matches!(&peers.unhealthy[0].1, PeerProblem::Unreached(error) if error.is_absent()), "{peers:?}");
    assert_eq!(gone.reads.load(Ordering::SeqCst), 3);
}

/// The peers of 64 run respond to nothing: all run report it after the time limit of one peer.
#[tokio::test(start_paused = true)]
async fn run_check_their_peers_in_parallel() {
    let run = Run::default();
    let (own, silent) = (Host::healthy(), Host::new(|_| Err(ScriptedFault::Down)));
    let start = Instant::now();
    let checks = (0..64).map(|number| {
        let (run, own, silent) = (&run, &own, &silent);
        async move {
            let peers = BTreeMap::from([("peer".to_owned(), peer("peer", silent))]);
            guarded_by(run, &format!("m{number}"), own, peers, 1).await
        }
    });
    let outcomes = futures::future::join_all(checks).await;
    assert!(outcomes.iter().all(refused), "{outcomes:?}");
    assert!(start.elapsed() <= PEER_LIMIT, "{:?}", start.elapsed());
}
