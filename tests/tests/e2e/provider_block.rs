//! The `ssh` object of the provider block: errors of `terraform validate` with their paths, and warnings of each plan.

use grit_tests::terraform::Workspace;
use serde_json::Value as Json;

const HEAD: &str = "terraform {\n  required_providers {\n    grit = {\n      source = \"runner-tools/grit\"\n    }\n  }\n}\n";
const HEALTH_CHECK: &str = "resource \"grit_runner_health\" \"all\" {\n  runner_managers = {}\n}\n";

/// The errors of `validate` for an `ssh` object, each with the line of the configuration. Every core reports the line of the top-level
/// attribute, so the message must name the nested attribute. The exact paths are tested in the provider.
fn findings(ssh: &str) -> String {
    let workspace = Workspace::new(&["grit"]).unwrap();
    let text = format!(
        "{HEAD}variable \"late\" {{}}\nprovider \"grit\" {{\n  ssh = {{\n{ssh}  }}\n}}\n{HEALTH_CHECK}"
    );
    workspace.write("main.tf", &text).unwrap();
    let run = workspace.validate().unwrap();
    let report: Json = serde_json::from_str(&run.stdout).unwrap();
    let finding = |finding: &Json| {
        let line = finding["range"]["start"]["line"].as_u64().unwrap();
        let pointed = text.lines().nth(usize::try_from(line).unwrap() - 1).unwrap().trim();
        let said = |key: &str| finding[key].as_str().unwrap().to_owned();
        format!("{pointed}\n  {}\n  {}\n", said("summary"), said("detail"))
    };
    let errors = report["diagnostics"].as_array().unwrap().iter().filter(|it| it["severity"] == "error");
    let mut all: Vec<_> = errors.map(finding).collect();
    all.sort();
    all.join("\n")
}

#[test]
fn validate_reports_credential_and_trust_errors() {
    insta::assert_snapshot!(findings(
        r#"
    private_key_path = "/nonexistent/id_ed25519"
    certificate_path = "/nonexistent/id_ed25519-cert.pub"
    host_keys        = ["SHA256:short"]
    host_ca          = ["not a key"]
    known_hosts      = "nothing"
    connect_timeout  = "5 minutes"
    call_timeout     = "10"
"#
    ));
}

#[test]
fn validate_reports_jump_host_errors() {
    insta::assert_snapshot!(findings(
        r#"
    private_key = "not a key"
    proxy_jump = [
      { address = var.late, host_key = "no key" },
      { address = "h:99999", private_key_path = "/nonexistent/hop" },
    ]
"#
    ));
}

#[test]
fn validate_reports_conflicting_methods_and_placeholders() {
    insta::assert_snapshot!(findings(
        r#"
    proxy_command = ["ssh", var.late, "-W", "{{hots}}:{{port}}"]
    ssh_command   = ["nc", "{{wrapper_path}}"]
"#
    ));
    insta::assert_snapshot!(
        "validate_ssh_command",
        findings("    ssh_command = [\"nc\", \"{{wrapper_pat\"]\n")
    );
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
    assert_eq!(found, "");
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
