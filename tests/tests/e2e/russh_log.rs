//! russh logs every packet through the `log` crate, which goes to the provider's log. The provider filters it, also at the most
//! verbose level.

use grit_tests::rollout::Rollout;

#[test]
fn russh_logs_only_warnings() {
    let mut rollout = Rollout::start().unwrap();
    let path = rollout.workspace.tmp().join("provider.log");
    rollout.workspace.set_env("TF_LOG_PROVIDER", "TRACE");
    rollout.workspace.set_env("TF_LOG_PATH", &path);
    rollout.deploy(&["m1-v1"]);
    rollout.workspace.destroy().unwrap().succeeded();

    let log = std::fs::read_to_string(path).unwrap();
    assert!(log.contains("SSH session established"), "our own lines are there: {log}");
    for line in log.lines().filter(|line| line.contains("russh::") || line.contains("@module=log")) {
        assert!(line.contains("[WARN]") || line.contains("[ERROR]"), "{line}");
    }
    let key = rollout.lab.client_key().pem().unwrap();
    for body in key.lines().filter(|line| !line.starts_with('-')) {
        assert!(!log.contains(body), "a line of the private key is in the log");
    }
}
