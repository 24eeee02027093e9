//! Sections whose tokens begin alike, as those of one GitLab group: GitLab Runner counts the results of their job requests together.

use std::{process::Command, time::Duration};

use grit_tests::{
    lab::{Lab, host::Host},
    poll,
    rollout::PATIENCE,
    terraform::built,
};
use serde_json::Value as Json;

const GOOD: &str = "glrt-t2_Zzo0YWUxeGood";
const BAD: &str = "glrt-t2_Zzo0YWUxeBad";

fn health(address: &str) -> Result<Json, String> {
    let mut command = Command::new(built("grit-wrapper").unwrap());
    let output = command.args(["status", "--json", "--address", address]).output().unwrap();
    let status: Json = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("{error}: {}", String::from_utf8_lossy(&output.stderr)))?;
    Ok(status["health"].clone())
}

/// Two sections, each of which has its turn in each second. Failures disable none of them.
fn both(lab: &Lab) -> Host {
    lab.cloud().shape(|_, spec| {
        *spec = std::mem::take(spec).wrapper(&["--probe-interval=100ms"]);
        spec.tokens = Some(vec![GOOD.to_owned(), BAD.to_owned()]);
        spec.check_interval = Duration::from_secs(1);
        spec.section = "  unhealthy_requests_limit = 1000".to_owned();
    });
    lab.cloud().create("both", "19.2.0").unwrap().1
}

/// Reads the health all the time, until GitLab has refused ten requests.
#[test]
fn rejected_section_is_never_polling() {
    let lab = Lab::start().unwrap();
    lab.queue().refuse_token(BAD);
    let host = both(&lab);
    let address = host.wrapper_address();
    let mut seen = Vec::new();
    poll::until("refusals", PATIENCE, || {
        let health = health(&address)?;
        assert!(health["level"] != "polling" && health["level"] != "working", "{health}");
        seen.push(health.clone());
        if lab.queue().runner("both").refused >= 10 { Ok(()) } else { Err(health.to_string()) }
    });
    let only_first_polls = |health: &Json| {
        let reasons = health["reasons"].to_string();
        health["level"] == "ready"
            && health["polling_sections"] == 1
            && reasons.contains("both-1")
            && reasons.contains("GitLab rejects its token")
    };
    assert!(seen.iter().any(only_first_polls), "{}", seen.last().unwrap());
}

/// If the runner skips turns, the wrapper sees this only after a minute: `runner::polls::shared_token`.
#[test]
fn accepted_sections_poll() {
    let lab = Lab::start().unwrap();
    let host = both(&lab);
    poll::until("both sections poll", 2 * PATIENCE, || {
        let health = health(&host.wrapper_address())?;
        if health["level"] == "polling" { Ok(()) } else { Err(health.to_string()) }
    });
}
