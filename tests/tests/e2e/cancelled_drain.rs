//! A drain that an operator cancels on the host, while Terraform waits for it.

use std::process::{Command, Output};

use grit_tests::{
    lab::Lab,
    poll,
    rollout::PATIENCE,
    terraform::{Workspace, built},
};
use serde_json::{Value as Json, json};

#[test]
fn cancel_on_the_host_ends_the_wait() {
    let lab = Lab::start().unwrap();
    // SIGQUIT is delayed for this time after the start of the runner: until then, the drain can be cancelled.
    lab.cloud().shape(|_, spec| *spec = spec.clone().wrapper(&["--start-grace", "10m"]));
    let (instance, host) = lab.cloud().create("m1", "19.2.0").unwrap();
    let workspace = Workspace::new(&["grit"]).unwrap();
    let main = json!({
        "terraform": { "required_providers": { "grit": { "source": "runner-tools/grit" } } },
        "provider": { "grit": { "ssh": { "private_key_path": lab.client_key().path } } },
        "resource": { "grit_runner_drain": { "m1": {
            "instance_id": instance.id,
            "runner_manager": instance.runner_manager(),
            "timeouts": { "delete": "120s" },
        } } },
    });
    workspace.write("main.tf.json", &main.to_string()).unwrap();
    workspace.apply().unwrap().succeeded();
    let operator = |command: &str| -> Output {
        let mut program = Command::new(built("grit-wrapper").unwrap());
        program.args([command, "--json", "--address", &instance.wrapper_address]).output().unwrap()
    };
    let state = || -> Json { serde_json::from_slice(&operator("status").stdout).unwrap_or_default() };

    // Twice: a later destroy requests the drain again, although the same drain was cancelled before.
    for _ in 0..2 {
        let destroyed = std::thread::scope(|scope| {
            let destroy = scope.spawn(|| workspace.destroy().unwrap());
            poll::until("the drain is requested", PATIENCE, || {
                let state = state();
                if state["state"] == "draining" { Ok(()) } else { Err(state) }
            });
            let cancelled = operator("cancel");
            assert!(cancelled.status.success(), "{cancelled:?}");
            destroy.join().unwrap()
        });
        let failed = destroyed.failed();
        let errors = failed.errors();
        let [(summary, detail)] = errors.as_slice() else { panic!("{errors:#?}") };
        assert_eq!(*summary, "Drain was cancelled on the host");
        for part in [
            "was cancelled on the host by uid ",
            "unix socket at 20",
            "keeps running",
            "run the same command again",
        ] {
            assert!(detail.contains(part), "{part}: {detail}");
        }
        assert!(detail.ends_with("Code: cancelled"), "{detail}");
        assert_eq!(workspace.state().unwrap().objects.len(), 1, "the drain resource stays");
        assert!(host.runner_pid().is_some());
        assert_eq!(state()["drain"], Json::Null, "it is not requested again");
    }
    assert_eq!(lab.events().signals(None), Vec::<String>::new());
}
