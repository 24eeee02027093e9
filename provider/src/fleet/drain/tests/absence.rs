//! Hosts that are gone, by `on_unreachable` or by the user's statement.

use super::*;

#[tokio::test(start_paused = true)]
async fn absent_host_is_terminated_only_with_assume_terminated() {
    let policy = DrainPolicy { on_unreachable: OnUnreachable::AssumeTerminated, ..policy() };
    let down = Scripted::new(|_| Err::<RunnerStatus, _>(ScriptedFault::Down));
    let outcome = drained(&policy, &down).await.unwrap();
    assert!(matches!(outcome, Drained::AssumedTerminated { attempts: 5, .. }), "{outcome:?}");

    // A host that answers and refuses is not gone.
    let refusing = Scripted::new(|_| Err::<RunnerStatus, _>(ScriptedFault::Refused));
    let error = drained(&policy, &refusing).await.unwrap_err();
    assert!(is_unreached(&error), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn absent_host_is_assumed_terminated_at_deadline() {
    let down = || Scripted::new(|_| Err::<RunnerStatus, _>(ScriptedFault::Down));
    for attempts in [Some(100), None] {
        let short = DrainPolicy { timeout: Duration::from_secs(60), retry: retry(attempts), ..assuming() };
        let start = Instant::now();
        let outcome = drained(&short, &down()).await.unwrap();
        assert!(matches!(outcome, Drained::AssumedTerminated { .. }), "{outcome:?}");
        assert_eq!(start.elapsed().as_secs(), 60);
    }
    // Without the user's confirmation the result is an error, also with `force`.
    let short = DrainPolicy { timeout: Duration::from_secs(60), retry: retry(None), ..policy() };
    let error = drained(&short, &down()).await.unwrap_err();
    assert_eq!((is_unreached(&error), error.requested), (true, Requested::No));
}

#[tokio::test(start_paused = true)]
async fn host_reachable_in_some_attempts_is_not_assumed_absent() {
    // It answers, and does not let us in: it is there.
    let busy = Scripted::new(|_| Err::<RunnerStatus, _>(ScriptedFault::Busy));
    let error = drained(&assuming(), &busy).await.unwrap_err();
    assert_eq!(attempts(&error), 5);

    let busy = Scripted::new(|_| Err::<RunnerStatus, _>(ScriptedFault::Busy));
    let short = DrainPolicy { timeout: Duration::from_secs(60), retry: retry(None), ..assuming() };
    let error = drained(&short, &busy).await.unwrap_err();
    assert!(is_unreached(&error), "{error:?}");

    // It answered for the first 10 s, and is absent since: all attempts in a row count, from then on.
    let dying = Scripted::new(|input| {
        Err::<RunnerStatus, _>(if input.elapsed.as_secs() < 5 {
            ScriptedFault::Busy
        } else {
            ScriptedFault::Down
        })
    });
    let outcome = drained(&assuming(), &dying).await.unwrap();
    assert!(matches!(outcome, Drained::AssumedTerminated { attempts: 5, .. }), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn attempt_cut_off_by_deadline_is_ignored() {
    let short = DrainPolicy { timeout: Duration::from_secs(60), retry: retry(None), ..assuming() };
    let late = |before: ScriptedFault| {
        Scripted::new(move |input| {
            Err::<RunnerStatus, _>(if input.elapsed.as_secs() < 30 { before } else { ScriptedFault::CutOff })
        })
    };
    let error = drained(&short, &late(ScriptedFault::HandshakeQueueTimeout)).await.unwrap_err();
    assert_eq!(attempts(&error), 0);

    let outcome = drained(&short, &late(ScriptedFault::Down)).await.unwrap();
    let Drained::AssumedTerminated { error, .. } = outcome else { panic!("{outcome:?}") };
    assert!(error.to_string().contains("refused"), "{error}");
}

/// The user's statement about this instance: the first attempt is enough, unless the wrapper responds or the host is seen to be there.
#[tokio::test(start_paused = true)]
async fn confirmed_end_counts_unless_the_host_is_there() {
    use ScriptedFault::{
        Broken, Busy, Down, HandshakeQueueTimeout, KeyUnreadable, LoginLost, LoginRejected, Lost, NoRoute,
        NoSocket, Refused,
    };
    let confirmed = DrainPolicy { on_unreachable: OnUnreachable::Confirmed, ..policy() };
    for fault in [Down, Busy, Lost, Broken, NoRoute, NoSocket] {
        let (wrapper, start) = (Scripted::new(move |_| Err::<RunnerStatus, _>(fault)), Instant::now());
        let outcome = drained(&confirmed, &wrapper).await.unwrap();
        let Drained::AssumedTerminated { attempts, .. } = outcome else { panic!("{outcome:?}") };
        assert_eq!((attempts, start.elapsed()), (1, Duration::ZERO), "{fault:?}");
    }
    for (fault, tried) in [(Refused, 1), (LoginRejected, 1), (KeyUnreadable, 1), (LoginLost, 5)] {
        let wrapper = Scripted::new(move |_| Err::<RunnerStatus, _>(fault));
        let error = drained(&confirmed, &wrapper).await.unwrap_err();
        assert_eq!((attempts(&error), error.offers_confirmation()), (tried, false), "{fault:?}");
    }
    // Without an attempt: at the deadline.
    let short = DrainPolicy { timeout: Duration::from_secs(60), ..confirmed.clone() };
    let waiting = Scripted::new(|_| Err::<RunnerStatus, _>(HandshakeQueueTimeout));
    let outcome = drained(&short, &waiting).await.unwrap();
    assert!(matches!(outcome, Drained::AssumedTerminated { .. }), "{outcome:?}");

    // It was about to shut down.
    let dying = Scripted::new(|input: ScriptInput| {
        Err::<RunnerStatus, _>(if input.elapsed.is_zero() { LoginLost } else { Down })
    });
    let outcome = drained(&confirmed, &dying).await.unwrap();
    assert!(matches!(outcome, Drained::AssumedTerminated { attempts: 2, .. }), "{outcome:?}");

    // A wrapper that responded in this run has a drain since.
    let wrapper = Scripted::new(|input: ScriptInput| match input.elapsed.as_secs() {
        10..3000 => Err(Down),
        _ => draining(4000)(input),
    });
    assert_eq!(end(&drained(&confirmed, &wrapper).await.unwrap()), (StartedBy::Here, false));
}

/// The error of a host that is there, or that shows nothing, must not print the command that gives it up.
#[tokio::test(start_paused = true)]
async fn confirmation_is_offered_only_for_hosts_that_can_be_gone() {
    use ScriptedFault::{Busy, Down, KeyUnreadable, LoginRejected, NoRoute, NoSocket, Refused};
    for (fault, offered) in [
        (Down, true),
        (NoSocket, true),
        (NoRoute, false),
        (Busy, false),
        (LoginRejected, false),
        (KeyUnreadable, false),
        (Refused, false),
    ] {
        for policy in [policy(), assuming()] {
            let wrapper = Scripted::new(move |_| Err::<RunnerStatus, _>(fault));
            let outcome = drained(&policy, &wrapper).await;
            if fault == Down && policy.on_unreachable == OnUnreachable::AssumeTerminated {
                assert!(matches!(outcome, Ok(Drained::AssumedTerminated { .. })), "{outcome:?}");
            } else {
                assert_eq!(outcome.unwrap_err().offers_confirmation(), offered, "{fault:?}");
            }
        }
    }
}
