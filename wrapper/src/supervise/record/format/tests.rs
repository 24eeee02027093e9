//! Files that are read, and files that are rejected.

use std::time::Duration;

use super::*;
use crate::supervise::core::State;

/// The format of the first release. Every later wrapper must read it, because a runner may be running.
const FIRST: &str = r#"{"version":"1","invocation":"0123456789abcdef0123456789abcdef","supervision":{
        "state":{"Stopping":{
            "child":{"process":{"pid":4242,"start_ticks":17,"boot":"00000000-0000-0000-0000-000000000001"},
                "started":{"monotonic":1000,"wall":1700000000000}},
            "stop":{"id":"deploy-7","reason":"why","requested_by":"unix","requested":{"monotonic":2000,"wall":1700000001000},
                "requested_mode":"graceful","mode":"graceful","forced_by":"","deadline":{"monotonic":9000,"wall":1700000008000},
                "callbacks":[{"url":"https://ci.example.com/","method":"POST","headers":{"token":"s"}}],
                "aborts_jobs":false,"lost_results":false,"open_requests":0,"unconfirmed":false,"outcome":null},
            "phase":{"Draining":{"since":{"monotonic":3000,"wall":1700000002000},"repeated":false}}}},
        "leaving":false,
        "restarts":{"count":3,"failures":2,"automatic":true},
        "last_stop":null,
        "observed":{"aborts_jobs":true,"results_lost_from":null,"shutdown_timeout":{"secs":600,"nanos":0},
            "reports_requests":true}}}"#;

fn first() -> serde_json::Value {
    serde_json::from_str(FIRST).unwrap()
}

fn parse(json: &serde_json::Value) -> Result<Saved, Unreadable> {
    Saved::parse(json.to_string().as_bytes())
}

#[test]
fn format_version_1_is_read_and_written() {
    let saved = parse(&first()).unwrap();
    let State::Stopping { child, stop, .. } = &saved.supervision.state else { panic!("{saved:?}") };
    assert_eq!((child.pid(), stop.callbacks.len()), (4242, 1));
    assert_eq!(saved.supervision.observed.shutdown_timeout, Some(Duration::from_secs(600)));
    assert_eq!(
        serde_json::to_value(&saved).unwrap()["supervision"]["restarts"],
        first()["supervision"]["restarts"]
    );
    let keys = |json: &serde_json::Value| json.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let written = serde_json::to_value(&saved).unwrap();
    for place in [
        "",
        "/supervision",
        "/supervision/observed",
        "/supervision/state/Stopping/stop",
        "/supervision/state/Stopping/phase/Draining",
    ] {
        assert_eq!(keys(written.pointer(place).unwrap()), keys(first().pointer(place).unwrap()), "{place}");
    }
    let debug = format!("{saved:?}");
    assert!(!debug.contains("\"s\""), "{debug}");
}

#[test]
fn unknown_fields_are_ignored() {
    let mut json = first();
    for place in
        ["", "/supervision", "/supervision/state/Stopping/child/process", "/supervision/state/Stopping/stop"]
    {
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
    json["invocation"] = 7.into();
    assert!(refused(&json));
    json["version"] = serde_json::Value::Null;
    assert!(matches!(parse(&json), Err(Unreadable::Broken(_))));
}

#[test]
fn missing_required_fields_are_rejected() {
    for field in ["version", "supervision"] {
        let mut json = first();
        json.as_object_mut().unwrap().remove(field);
        assert!(matches!(parse(&json), Err(Unreadable::Broken(_))), "{field}");
    }
}
