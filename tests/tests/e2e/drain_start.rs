//! The load tests would notice a drain that loses jobs at its start: the same hosts lose jobs if their wrappers do not wait for a gap.

use std::{process::Command, time::Duration};

use grit_tests::{
    lab::{Lab, event::What, host::Host, queue::LongPolling},
    rollout::PATIENCE,
    terraform::built,
};

/// About a third of the drains loses a job, so that 80 drains without a loss have a probability below 1e-12.
const ROUNDS: usize = 10;
const HOSTS: usize = 8;

#[test]
fn drains_under_load_lose_jobs_without_the_gap() {
    let lab = Lab::start().unwrap();
    lab.queue().set_long_polling(LongPolling::Off);
    lab.cloud().shape(|_, spec| {
        *spec = std::mem::take(spec).under_load().wrapper(&["--start-grace=0s", "--request-gap-timeout=0s"]);
    });
    let hosts: Vec<_> =
        (1..=HOSTS).map(|number| lab.cloud().create(&format!("m{number}"), "19.2.0").unwrap().1).collect();
    let _load = lab.queue().load(8 * HOSTS, Duration::from_millis(500));
    let mut from = 0;
    for _ in 0..ROUNDS {
        for host in &hosts {
            let polls = lab.events().wait_from(from, PATIENCE, |event| {
                event.subject == host.instance_name() && matches!(event.what, What::RunnerPolling { .. })
            });
            assert!(polls.is_some(), "{} does not poll", host.instance_name());
        }
        from = lab.events().note("test", "drain").seq;
        let drains: Vec<_> =
            hosts.iter().map(|host| operator(host, "drain").arg("--wait").spawn().unwrap()).collect();
        for mut drain in drains {
            assert!(drain.wait().unwrap().success(), "the wrapper does not know of the loss");
        }
        if !lab.queue().lost().is_empty() {
            return;
        }
        for host in &hosts {
            assert!(operator(host, "start").status().unwrap().success());
        }
    }
    panic!("no job was lost");
}

fn operator(host: &Host, command: &str) -> Command {
    let mut operator = Command::new(built("grit-wrapper").unwrap());
    operator.args([command, "--address", &host.wrapper_address()]).stdout(std::process::Stdio::null());
    operator
}
