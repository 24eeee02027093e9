use super::*;

#[test]
fn wait_before_the_signal_is_a_field_of_the_drain() {
    let of = |waits_for: &str| {
        let drain = Some(v1::Drain { waits_for: waits_for.to_owned(), ..Default::default() });
        let status = v1::Status { state: v1::State::Draining.into(), drain, ..Default::default() };
        Snapshot::from(status).signal_waits_for().map(str::to_owned)
    };
    let wait = "waiting until no job request is open (1 open)";
    assert_eq!(of(wait).as_deref(), Some(wait));
    assert_eq!(of(""), None);
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
        (v1::exit::How::Signal(9), "the runner was killed by signal 9"),
        (v1::exit::How::Code(1), "the exit code was 1"),
    ] {
        let expected = format!("the runner had exited before the drain: {text}; jobs may have been aborted");
        assert_eq!(bad_end(how), Some(expected));
    }
}
