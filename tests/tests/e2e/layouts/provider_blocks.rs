//! Provider blocks that break the order: one that is configured from an instance of the same configuration, and several for one fleet.

use grit_tests::{
    lab::event::What,
    rollout::{PATIENCE, Rollout},
};

use super::configuration::{CREATE_FIRST, NEW, OLD, drain, instance};

const HOP: &str = "merge(var.ssh, { proxy_jump = [{
    address  = lab_instance.bastion.address
    username = lab_instance.bastion.username
    host_key = lab_instance.bastion.host_key
  }] })";

#[test]
fn bastion_resource_is_destroyed_during_drain() {
    // The drain refers to the bastion, which would be sufficient without the provider block's reference.
    let all = |version: &str| {
        instance("bastion", version, CREATE_FIRST)
            + &instance("m", version, CREATE_FIRST)
            + &drain("m", &format!("reason = lab_instance.bastion.id\n  {CREATE_FIRST}"))
    };
    let rollout = Rollout::of(&all(OLD)).unwrap();
    // The bastions have no drains, and the new one is not in the health check.
    let of_bastions =
        ["bastion was destroyed while its runner ran", "m was drained before a newer one took jobs"];
    rollout.lab.expect(&of_bastions);
    let providers = std::fs::read_to_string(rollout.workspace.root().join("providers.tf")).unwrap();
    rollout
        .workspace
        .write("providers.tf", &providers.replace("ssh = var.ssh", &format!("ssh = {HOP}")))
        .unwrap();
    // The bastion runs no jobs.
    rollout.lab.cloud().shape(|name, spec| spec.configured = name != "bastion");
    rollout.workspace.apply().unwrap().succeeded();
    let jobs = rollout.hold_jobs(1);

    rollout.workspace.write("main.tf", &all(NEW)).unwrap();
    rollout
        .apply_while(|| {
            rollout.wait_for_drain("m");
            rollout.lab.events().wait_for(
                "the old bastion is destroyed during the drain",
                PATIENCE,
                |event| event.subject == "bastion" && matches!(event.what, What::InstanceTerminating { .. }),
            );
            rollout.lab.queue().release(&jobs);
        })
        .unwrap()
        .succeeded();
    // The drain used the new bastion, and the instance was destroyed after the drain.
    assert_eq!(rollout.runner_was_alive_at_the_end_of("m"), Some(false));
}

#[test]
fn rename_with_other_provider_block_drains_live_runner() {
    let named = |name: &str, provider: &str| {
        instance("m", OLD, CREATE_FIRST)
            + &drain("m", &format!("provider = {provider}\n  {CREATE_FIRST}"))
                .replace("\"grit_runner_drain\" \"m\"", &format!("\"grit_runner_drain\" \"{name}\""))
            + "provider \"grit\" {\n  alias = \"other\"\n  ssh   = var.ssh\n}\n"
    };
    let rollout = Rollout::of(&named("old_name", "grit")).unwrap();
    rollout.workspace.apply().unwrap().succeeded();
    // With the same block, the plan is refused.
    rollout.workspace.write("main.tf", &named("new_name", "grit")).unwrap();
    let refused = rollout.workspace.plan().unwrap().failed();
    assert!(
        refused.errors().iter().all(|(_, detail)| detail.ends_with("Code: refused")),
        "{:?}",
        refused.errors()
    );
    // Another provider block is another process, which does not have the old drain resource.
    rollout.workspace.write("main.tf", &named("new_name", "grit.other")).unwrap();
    rollout.workspace.apply().unwrap().succeeded();
    assert_eq!(rollout.signals("m"), ["SIGQUIT"]);
    assert_eq!(rollout.runner_was_alive_at_the_end_of("m"), None, "the instance stays");
}
