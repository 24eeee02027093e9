//! The user data of the module `cloud-init`: valid by cloud-init's schema, and executed by cloud-init on a booted system.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use grit_tests::{
    cloud_init::{document, user_data},
    debian::{both, machine::Machine},
    ssh_server::KeyPair,
    terraform::built,
};
use serde_json::json;

use crate::systemd::{listen_address, machine};

/// Debian's cloud-init, where `cargo xtask test` unpacks it.
fn cloud_init() -> PathBuf {
    let target = built("xtask").unwrap().parent().unwrap().parent().unwrap().to_owned();
    let folder = target.join("cloud-init");
    let program = folder.join("usr/bin/cloud-init");
    assert!(program.is_file(), "{} is missing: let `cargo xtask test` unpack it", program.display());
    folder
}

#[test]
fn user_data_is_valid_by_the_schema_of_cloud_init() {
    let folder = cloud_init();
    let key = KeyPair::generate().unwrap();
    let package = json!({ "url": "https://example.com/grit-wrapper.deb", "sha256": "0".repeat(64) });
    let temporary = tempfile::tempdir().unwrap();
    let file = temporary.path().join("user_data");
    let check = |text: &str| {
        fs::write(&file, text).unwrap();
        Command::new("/usr/bin/python3")
            .arg(folder.join("usr/bin/cloud-init"))
            .args(["schema", "--config-file"])
            .arg(&file)
            .env("PYTHONPATH", folder.join("usr/lib/python3/dist-packages"))
            .output()
            .unwrap()
    };
    for inputs in [
        json!({}),
        json!({ "wrapper_package": package, "install_fleeting": true, "boot_verify_timeout": null }),
    ] {
        let text = user_data(&key, &inputs).unwrap();
        let output = check(&text);
        assert!(output.status.success(), "{}", both(&output));
        assert!(!both(&output).contains("deprecat"), "{}", both(&output));
        // The check is not empty.
        let output = check(&text.replace("\"runcmd\":", "\"runcmd\": 1\n\"run_cmd\":"));
        assert!(!output.status.success(), "{}", both(&output));
    }
}

/// A script that does not parse starts no runner, and the health check waits until its timeout.
#[test]
fn first_boot_script_parses_with_and_without_optional_parts() {
    let key = KeyPair::generate().unwrap();
    let package = json!({ "url": "https://example.com/grit-wrapper.deb", "sha256": "0".repeat(64) });
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("first-boot.sh");
    for inputs in [
        json!({}),
        json!({ "install_runner": [] }),
        json!({ "wrapper_package": package, "install_fleeting": true, "metrics": "network" }),
    ] {
        let document = document(&key, &inputs).unwrap();
        let is_served =
            document.to_string().contains("--http-listen tcp://0.0.0.0:9253 --insecure-http-beyond-loopback");
        assert_eq!(is_served, inputs["metrics"] == "network");
        let script = document["write_files"][1]["content"].as_str().unwrap();
        assert!(script.starts_with("#!/bin/sh\n"), "{script}");
        fs::write(&file, script).unwrap();
        let parsed = Command::new("sh").arg("-n").arg(&file).output().unwrap();
        assert!(parsed.status.success(), "{inputs}: {}\n{script}", both(&parsed));
    }
}

/// The service runs the script before each start, also after a restart of the runner.
#[test]
fn script_against_metadata_service_adds_each_rule_once() {
    let document = document(&KeyPair::generate().unwrap(), &json!({ "executor": "docker" })).unwrap();
    let script = document["write_files"][4]["content"].as_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("script"), script).unwrap();
    let run = || {
        let mut command = Command::new("/bin/sh");
        command.arg(path("script")).env("PATH", folder.path()).current_dir(folder.path()).output().unwrap()
    };
    // A runner whose jobs can read the user data must not start.
    let without = run();
    assert!(!without.status.success() && both(&without).contains("iptables"), "{}", both(&without));

    // A firewall that has the chain already, as after the start of Docker, and that knows its rules.
    let program = "#!/bin/sh\n[ \"$1\" = --wait ] || exit 2\nkind=$2\nshift 2\nrule=\"$0 $*\"\ncase $kind in\n\
                   --new-chain) exit 1 ;;\n--check) while read -r known; do [ \"$known\" = \"$rule\" ] && exit 0; done <rules; exit 1 ;;\n\
                   --insert) echo \"$rule\" >>rules ;;\n*) exit 2 ;;\nesac\n";
    fs::write(path("rules"), "").unwrap();
    for name in ["iptables", "ip6tables"] {
        fs::write(path(name), program).unwrap();
        fs::set_permissions(path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    for _ in 0..2 {
        let output = run();
        assert!(output.status.success(), "{}", both(&output));
        let rules = fs::read_to_string(path("rules")).unwrap();
        let rules: Vec<_> = rules.lines().map(|rule| rule.rsplit('/').next().unwrap()).collect();
        let rule = |program: &str, address: &str| {
            format!(
                "{program} DOCKER-USER --protocol tcp ! --destination-port 53 --destination {address} --jump REJECT"
            )
        };
        let expected = [
            rule("iptables", "169.254.169.254"),
            rule("ip6tables", "fd00:ec2::254"),
            rule("ip6tables", "fd20:ce::254"),
        ];
        let expected = if Path::new("/proc/net/if_inet6").exists() { &expected[..] } else { &expected[..1] };
        assert_eq!(rules, expected);
    }
}

/// The stages of cloud-init that run on the machine: all except the network settings and the search for a cloud.
const SETTINGS: &str = r#"
datasource_list: [NoCloud]
network: { config: disabled }
cloud_init_modules: [write-files, users-groups, ssh]
cloud_config_modules: [runcmd]
cloud_final_modules: [scripts-user]
system_info:
  distro: debian
  default_user: { name: debian }
  paths: { cloud_dir: /var/lib/cloud, templates_dir: /etc/cloud/templates }
"#;

/// Puts cloud-init and this user data on a machine, and runs the stages of a first boot. Calls `before_sshd` after the stage that sshd waits for.
pub(crate) fn first_boot(machine: &Machine, user_data: &str, before_sshd: impl Fn()) {
    let copied =
        Command::new("cp").arg("-a").arg(cloud_init()).arg(machine.system.path("/opt/cloud-init")).status();
    assert!(copied.unwrap().success());
    let seed = machine.system.path("/var/lib/cloud/seed/nocloud");
    fs::create_dir_all(&seed).unwrap();
    fs::write(seed.join("meta-data"), "instance-id: i-test\n").unwrap();
    fs::write(seed.join("user-data"), user_data).unwrap();
    fs::create_dir_all(machine.system.path("/etc/cloud/templates")).unwrap();
    fs::write(machine.system.path("/etc/cloud/cloud.cfg"), SETTINGS).unwrap();
    for stage in
        [&["init", "--local"][..], &["init"], &["modules", "--mode=config"], &["modules", "--mode=final"]]
    {
        let program = ["env", "PYTHONPATH=/opt/cloud-init/usr/lib/python3/dist-packages", "/usr/bin/python3"];
        let words = [&program[..], &["/opt/cloud-init/usr/bin/cloud-init"], stage].concat();
        let output = machine.system.run(&words).unwrap();
        assert!(output.status.success(), "{stage:?}: {}\n{}", both(&output), machine.journal());
        if stage == ["init"] {
            before_sshd();
        }
    }
}

#[test]
fn first_boot_starts_the_runner_beside_the_wrapper() {
    let Some(machine) = machine(&[]) else { return };
    machine.install("1.0.0");
    let config = fs::read_to_string(machine.system.path("/etc/gitlab-runner/config.toml")).unwrap();
    let listen = listen_address(&config);
    fs::remove_file(machine.system.path("/etc/gitlab-runner/config.toml")).unwrap();
    // The package in the image has enabled its service.
    machine.run(&["systemctl", "start", "gitlab-runner.service"]);
    // The script installs plugins after it has written the configuration.
    let runner = machine.system.path("/usr/bin/gitlab-runner");
    let note =
        "[ \"$1\" != fleeting ] || { systemctl is-active gitlab-runner.service >/run/state; exit 0; }\nexec";
    let program = fs::read_to_string(&runner).unwrap().replacen("exec", note, 1);
    fs::write(&runner, program).unwrap();
    machine.wait_property("gitlab-runner.service", "ActiveState", "active");
    let key = KeyPair::generate().unwrap();
    let inputs = json!({
        "gitlab_url": machine.lab.queue().url(), "listen_address": listen, "global_config": "check_interval = 0.1", "metrics": "network",
        "install_fleeting": true,
    });
    // The image does not have the wrapper's package, which creates the group.
    machine.run(&["groupdel", "grit-wrapper"]);
    // It shares the ports of this machine.
    let user_data = user_data(&key, &inputs).unwrap().replace("tcp://0.0.0.0:9253", "tcp://0.0.0.0:0");
    first_boot(&machine, &user_data, || {
        // The provider can log in from now on, and a session keeps the groups of its login.
        assert!(machine.run(&["id", "--name", "--groups", "deploy"]).contains("grit-wrapper"));
    });
    // As in the package's postinst: it uses the group that exists.
    let group = machine.run(&["getent", "group", "grit-wrapper"]);
    machine.run(&["systemd-sysusers", "grit-wrapper.conf"]);
    assert_eq!(machine.run(&["getent", "group", "grit-wrapper"]), group);

    assert_eq!(machine.property("gitlab-runner.service", "ActiveState"), "active");
    machine.wait_level("polling");
    assert!(machine.runner().is_some(), "{}", machine.journal());
    let state = fs::read_to_string(machine.system.path("/run/state")).unwrap();
    assert_eq!(state, "inactive\n", "a runner without the wrapper saw the configuration");
    let host_key = fs::read_to_string(machine.system.path("/etc/ssh/ssh_host_ed25519_key.pub")).unwrap();
    assert_eq!(host_key.split_whitespace().nth(1), key.public.split_whitespace().nth(1));
    let keys = fs::read_to_string(machine.system.path("/home/deploy/.ssh/authorized_keys")).unwrap();
    assert!(keys.contains("restrict,port-forwarding,command=\"/bin/false\""), "{keys}");
    // tests/tests/ssh/deploy_user.rs tries the requests.
    let drop_in =
        fs::read_to_string(machine.system.path("/etc/ssh/sshd_config.d/grit-deploy-user.conf")).unwrap();
    assert!(drop_in.contains("\nMatch User deploy\n"), "{drop_in}");
    let command = machine.property("grit-wrapper.service", "ExecStart");
    assert!(
        command.contains("grit-wrapper run --unit gitlab-runner.service --http-listen tcp://0.0.0.0:0 --insecure-http-beyond-loopback"),
        "{command}"
    );
    let enabled =
        ["gitlab-runner.service", "grit-wrapper.service"].map(|unit| machine.property(unit, "UnitFileState"));
    assert_eq!(enabled, ["enabled"; 2]);
    assert!(machine.journal().contains("HTTP server listening"), "{}", machine.journal());
    let mode = machine.run(&[
        "stat",
        "--format=%a %U",
        "/etc/gitlab-runner/config.toml",
        "/var/lib/grit/first-boot.sh",
    ]);
    assert_eq!(mode, "600 root\n700 root");
}
