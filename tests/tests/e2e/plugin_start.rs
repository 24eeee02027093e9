//! Start, output and end of a provider.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

use grit_tests::{
    poll,
    terraform::{Workspace, core},
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value as Json;

use crate::lab_probe::{LIMIT, SOON, lab, probe};

#[test]
fn manual_start_prints_hint_and_exits_1() {
    let lab = Workspace::new(&["lab"]).unwrap();
    let run = |variables: &[(&str, &str)]| {
        let mut command = Command::new(lab.provider_program("lab"));
        command.env_clear().envs(variables.iter().copied()).stdin(Stdio::null()).output().unwrap()
    };
    const COOKIE: (&str, &str) =
        ("TF_PLUGIN_MAGIC_COOKIE", "d602bf8f470bc67ca7faa0386276bbdd4330efaf76d1a219cb4d6991ca9872b2");
    for (variables, sentence) in [
        (
            &[][..],
            "terraform-provider-lab is a plugin that Terraform or OpenTofu starts; to debug it, run it with --debug.\n",
        ),
        (
            &[COOKIE, ("PLUGIN_PROTOCOL_VERSIONS", "4,5")][..],
            "terraform-provider-lab requires plugin protocol 6, but the caller supports only 4,5: use Terraform 1.6 or newer, or OpenTofu.\n",
        ),
    ] {
        let output = run(variables);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(String::from_utf8_lossy(&output.stderr), sentence);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    }
}

#[test]
fn terraform_without_plugin_tls_works() {
    let lab = lab(&probe("p", "")).env("TF_DISABLE_PLUGIN_TLS", "1");
    lab.apply().unwrap().succeeded();
    lab.destroy().unwrap().succeeded();
}

#[test]
fn debug_process_serves_several_commands() {
    let mut lab = lab(&probe("p", ""));
    let mut provider = lab.provider("lab").arg("--debug").stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(provider.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let providers =
        line.trim_end().strip_prefix("export TF_REATTACH_PROVIDERS='").unwrap().strip_suffix('\'').unwrap();
    // The provider prints the registry of its documentation; a core expects its own registry.
    let providers = providers.replace("registry.terraform.io", core().registry());
    let address = format!("{}/runner-tools/lab", core().registry());
    let socket = serde_json::from_str::<Json>(&providers).unwrap()[address]["Addr"]["String"]
        .as_str()
        .unwrap()
        .to_owned();
    lab.set_env("TF_REATTACH_PROVIDERS", providers);

    lab.apply().unwrap().succeeded();
    lab.destroy().unwrap().succeeded();
    let journal = lab.journal();
    assert!(journal.iter().any(|entry| entry.event == "destroy_end"), "{journal:?}");
    assert!(journal.iter().all(|entry| entry.pid == provider.id()), "{journal:?}");

    kill_process(Pid::from_child(&provider), Signal::INT).unwrap();
    let status = poll::until("the provider to end", SOON, || provider.try_wait().unwrap().ok_or("running"));
    assert_eq!(status.code(), Some(0));
    assert!(!fs::exists(socket).unwrap());
}

fn logged(variables: &[(&str, &str)]) -> String {
    let mut lab = lab(&probe("p", ""));
    for (name, value) in variables {
        lab.set_env(*name, *value);
    }
    lab.apply().unwrap().succeeded().stderr
}

#[test]
fn log_lines_have_levels_and_fields() {
    let log = logged(&[("TF_LOG_PROVIDER", "trace")]);
    let line = |text: &str| {
        log.lines().find(|line| line.contains(text)).unwrap_or_else(|| panic!("{text}: {log}")).to_owned()
    };
    for (level, text) in [
        ("[ERROR]", "said at error"),
        ("[WARN]", "said at warn"),
        ("[INFO]", "said at info"),
        ("[DEBUG]", "said at debug"),
        ("[TRACE]", "said at trace"),
    ] {
        let line = line(text);
        assert!(line.contains(level), "{line}");
        for field in
            ["name=p", "verb=create", "type_name=lab_probe", "@module=grit_tests::lab_provider::probe"]
        {
            assert!(line.contains(field), "{field}: {line}");
        }
    }
    assert!(line("said at warn").contains("attempt=3"));
    assert!(line("said at info").contains("done=true"));
}

#[test]
fn panic_is_logged_with_source_location() {
    let lab = lab(&probe("p", "mode = \"panic\"")).env("TF_LOG_PROVIDER", "error");
    let log = lab.apply().unwrap().failed().stderr;
    let line = log.lines().find(|line| line.contains("boom in create")).unwrap_or_else(|| panic!("{log}"));
    assert!(line.contains("[ERROR]") && line.contains("location=tests/src/lab_provider/probe.rs:"), "{line}");
}

#[test]
fn parallel_workspaces_are_isolated() {
    let labs: Vec<_> = (0..4).map(|_| lab(&probe("p", ""))).collect();
    let sessions: Vec<_> = labs.iter().map(|lab| lab.start(["apply", "-auto-approve"]).unwrap()).collect();
    for session in sessions {
        let ended = session.wait(LIMIT);
        assert_eq!(ended.code, Some(0), "{}", ended.output);
    }
    for lab in labs {
        lab.providers().assert_none_left(SOON);
        assert_eq!(fs::read_dir(lab.tmp()).unwrap().count(), 0, "a provider left its folder behind");
    }
}
