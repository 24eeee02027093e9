//! The `ssh` object of the provider block: errors of `terraform validate` with their paths, and warnings of each plan.

use grit_tests::terraform::Workspace;
use serde_json::Value as Json;

use super::faults::found_by;

const HEAD: &str = "terraform {\n  required_providers {\n    grit = {\n      source = \"runner-tools/grit\"\n    }\n  }\n}\n";
const HEALTH_CHECK: &str = "resource \"grit_runner_health\" \"all\" {\n  runner_managers = {}\n}\n";

/// The errors of `validate` for an `ssh` object.
fn findings(ssh: &str) -> Vec<String> {
    let workspace = Workspace::new(&["grit"]).unwrap();
    let text = format!(
        "{HEAD}variable \"late\" {{}}\nprovider \"grit\" {{\n  ssh = {{\n{ssh}  }}\n}}\n{HEALTH_CHECK}"
    );
    workspace.write("main.tf", &text).unwrap();
    let run = workspace.validate().unwrap();
    let report: Json = serde_json::from_str(&run.stdout).unwrap();
    for error in report["diagnostics"].as_array().unwrap().iter().filter(|it| it["severity"] == "error") {
        // Every core points at the top-level attribute. The exact paths are tested in the provider.
        let line = error["range"]["start"]["line"].as_u64().unwrap();
        assert_eq!(text.lines().nth(usize::try_from(line).unwrap() - 1), Some("  ssh = {"), "{error}");
    }
    found_by(&run)
}

#[test]
fn validate_reports_jump_host_errors() {
    let found = findings(
        r#"
    private_key = "not a key"
    proxy_jump = [
      { address = var.late, host_key = "no key" },
      { address = "h:99999", private_key_path = "/nonexistent/hop" },
    ]
"#,
    );
    let wanted = [
        "Invalid SSH option: ssh.private_key",
        "Invalid SSH option: ssh.proxy_jump[0].host_key",
        "Invalid address: ssh.proxy_jump[1].address",
    ];
    assert_eq!(found, wanted);
}

#[test]
fn validate_accepts_valid_and_unknown_values() {
    let found = findings(
        r#"
    username      = var.late
    private_key   = var.late
    agent         = { identity = "deploy" }
    host_ca       = [var.late]
    proxy_jump    = [{ address = "bastion.example.com", username = "jump" }]
    proxy_command = null
    call_timeout  = "20s"
"#,
    );
    assert_eq!(found, [""; 0]);
}

#[test]
fn every_plan_warns_about_insecure_ignore_host_key() {
    let workspace = Workspace::new(&["grit"]).unwrap();
    let provider = "provider \"grit\" {\n  ssh = { insecure_ignore_host_key = true }\n}\n";
    workspace.write("main.tf", &format!("{HEAD}{provider}{HEALTH_CHECK}")).unwrap();
    for _ in 0..2 {
        let plan = workspace.plan().unwrap().succeeded();
        let titles: Vec<_> = plan.warnings().into_iter().map(|(summary, _)| summary).collect();
        assert_eq!(titles, ["Host keys are not verified"]);
        workspace.apply().unwrap().succeeded();
    }
}
