//! Files that are read, and files that are rejected.

use super::*;

/// The format of the first grit-wrapper 0.1.0. Every later wrapper must read it, because a runner may be running.
const FIRST: &str = r#"{"version":"1",
    "child":{"identity":{"pid":4242,"start_ticks":17,"boot":"b"},"gate":{"device":1,"inode":2},"started":1700000000000},
    "stop":{"id":"deploy-7","reason":"why","forceful":false,"asked":1700000000001,"deadline":1700003600001,
        "callbacks":[{"url":"https://ci.example.com/","method":"POST","headers":{"Token":"s"}}],"called":[],
        "kill_at":null,"end":{"Exited":{"pid":4242,"exit":{"Code":1},"killed":false}}},
    "restarts":3,"failures":2}"#;

fn first() -> serde_json::Value {
    serde_json::from_str(FIRST).unwrap()
}

fn parse(json: &serde_json::Value) -> Result<Saved, Unreadable> {
    Saved::parse(json.to_string().as_bytes())
}

#[test]
fn format_version_1_is_read() {
    let saved = parse(&first()).unwrap();
    assert!(saved.clock.is_none() && saved.child.is_some() && saved.restarts == 3);
    let stop = saved.stop.unwrap();
    assert_eq!((stop.deadline, stop.callbacks.len(), stop.end.is_some()), (Some(1_700_003_600_001), 1, true));
}

/// The next wrapper searches the journal from there, and the messages of the drain have the wall clock of their time.
#[test]
fn clock_change_moves_no_saved_wall_time() {
    let stop = Stop::new("d", Mode::Graceful);
    let state = State::Exited { end: End::NeverStarted, stop: None };
    for (before, after) in [(0, 7_200_000), (0, -7_200_000), (7_200_000, 0)] {
        let (then, now) = (Clocks::now().set_by(before), Clocks::now().set_by(after));
        let saved = SavedStop::new(&then, &state, &stop);
        let restored = saved.restore(&Times::new(SavedClock::new(&then).as_ref(), now, Instant::now()));
        assert_eq!(times::wall_millis(restored.requested_wall), times::wall_millis(stop.requested_wall));
    }
}

#[test]
fn unknown_fields_are_ignored() {
    let mut json = first();
    for place in ["", "/child", "/child/identity", "/stop", "/stop/callbacks/0"] {
        json.pointer_mut(place).unwrap()["added"] = serde_json::json!({"in": "a later release"});
    }
    assert_eq!(parse(&json).unwrap(), parse(&first()).unwrap());
}

#[test]
fn other_format_version_is_rejected() {
    let mut json = first();
    json["version"] = "2".into();
    let refused = |json: &_| matches!(parse(json), Err(Unreadable::OtherVersion { version, runner: Some(4242) }) if version == "2");
    assert!(refused(&json));
    json["stop"] = "of another kind".into();
    assert!(refused(&json));
    json["version"] = serde_json::Value::Null;
    assert!(matches!(parse(&json), Err(Unreadable::Broken(_))));
}

#[test]
fn missing_required_fields_are_rejected() {
    for field in ["version", "restarts", "failures"] {
        let mut json = first();
        json.as_object_mut().unwrap().remove(field);
        assert!(matches!(parse(&json), Err(Unreadable::Broken(_))), "{field}");
    }
}
