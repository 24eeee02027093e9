use super::*;

#[test]
fn wait_before_the_signal_is_the_clause_of_the_first_reason() {
    let waits_for = |state: v1::State, signalled, reason: &str| {
        let health = v1::Health { reasons: vec![reason.to_owned()], ..Default::default() };
        let drain = Some(v1::Drain { signalled, ..Default::default() });
        let status = v1::Status { state: state.into(), health: Some(health), drain, ..Default::default() };
        Snapshot::from(status).signal_waits_for().map(str::to_owned)
    };
    let reason = "the runner is draining: waiting for a gap between job requests, 1 open";
    let wait = Some("waiting for a gap between job requests, 1 open".to_owned());
    assert_eq!(waits_for(v1::State::Draining, false, reason), wait);
    assert_eq!(waits_for(v1::State::Draining, true, reason), None);
    assert_eq!(waits_for(v1::State::Running, false, reason), None);
    assert_eq!(waits_for(v1::State::Draining, false, "the runner is draining"), None);
}

#[test]
fn runner_that_failed_before_the_drain_is_a_bad_end() {
    let bad_end = |how| {
        let status = v1::Status {
            drain: Some(v1::Drain { outcome: v1::DrainOutcome::NoRunner.into(), ..Default::default() }),
            exit: Some(v1::Exit { how: Some(how), killed: false }),
            ..Default::default()
        };
        Snapshot::from(status).detail.and_then(|detail| detail.bad_end(false))
    };
    assert_eq!(bad_end(v1::exit::How::Code(0)), None);
    for (how, text) in [
        (v1::exit::How::Signal(9), "it was killed by signal 9"),
        (v1::exit::How::Code(1), "its exit code was 1"),
    ] {
        let expected = format!("it had exited before the drain: {text}; its jobs may have been aborted");
        assert_eq!(bad_end(how), Some(expected));
    }
}
