//! Failures inside a call: the state keeps existing objects, and the user gets an error.

use grit_tests::terraform::{Run, Workspace};

use crate::lab_probe::{lab, probe};

fn apply_in(mode: &str) -> (Workspace, Run) {
    let lab = lab(&probe("p", &format!("mode = \"{mode}\"")));
    let run = lab.apply().unwrap();
    (lab, run)
}

#[track_caller]
fn assert_error(run: Run, summary: &str, part_of_detail: &str) {
    let run = run.failed();
    let errors = run.errors();
    assert!(
        errors.iter().any(|(s, detail)| *s == summary && detail.contains(part_of_detail)),
        "no error {summary:?} with {part_of_detail:?} in {errors:#?}"
    );
}

#[track_caller]
fn assert_checkpoint_is_tainted(lab: &Workspace) {
    let state = lab.state().unwrap();
    assert_eq!(state.objects.len(), 1, "{}", state.text);
    assert!(state.objects[0].tainted);
    assert_eq!(state.objects[0].attributes["id"], "id-p");
    assert_eq!(
        state.objects[0].attributes["blob"],
        serde_json::Value::Null,
        "unknown values are saved as null"
    );
    assert!(state.objects[0].private.is_some());
}

#[test]
fn panic_in_create_names_source_and_keeps_checkpoint() {
    let (lab, run) = apply_in("panic");
    assert_error(run, "Provider bug", "create of lab_probe panicked at tests/src/lab_provider/probe.rs:");
    assert_checkpoint_is_tainted(&lab);
}

#[test]
fn diagnostics_contain_no_backtrace() {
    for mode in ["fail", "none", "panic"] {
        let lab = lab(&probe("p", &format!("mode = \"{mode}\""))).env("RUST_BACKTRACE", "1");
        let run = lab.apply().unwrap().failed();
        assert_eq!(run.errors().len(), 1);
        for (_, detail) in run.errors() {
            // What failed, what to do, and the code, with empty lines in between.
            assert!(!detail.contains("0:") && detail.lines().count() <= 5, "{detail}");
        }
    }
}

#[test]
fn panic_before_checkpoint_leaves_no_state() {
    let (lab, run) = apply_in("panic_at_once");
    assert_error(run, "Provider bug", "boom in create");
    assert_eq!(lab.state().unwrap().objects.len(), 0);
}

#[test]
fn create_without_result_is_a_bug_and_keeps_checkpoint() {
    let (lab, run) = apply_in("none");
    assert_error(run, "Provider bug", "create of lab_probe returned no result and no error");
    assert_checkpoint_is_tainted(&lab);
}

#[test]
fn failed_create_keeps_checkpoint() {
    let (lab, run) = apply_in("fail");
    assert_error(run, "Asked to fail", "`fail`");
    assert_checkpoint_is_tainted(&lab);
}

/// Fails to destroy, and then succeeds, with the private data of the first apply and the mark `create_before_destroy`.
#[track_caller]
fn destroy_fails_and_keeps_everything(mode: &str, summary: &str, part_of_detail: &str) {
    let arguments = format!("mode = \"{mode}\"\nlifecycle {{\n create_before_destroy = true\n }}");
    let mut lab = lab(&probe("p", &arguments));
    lab.apply().unwrap().succeeded();
    let before = lab.state().unwrap().objects;

    lab.write("main.tf", &crate::lab_probe::with_header("")).unwrap();
    assert_error(lab.apply().unwrap(), summary, part_of_detail);
    let after = lab.state().unwrap().objects;
    assert_eq!(after.len(), 1);
    assert!(!after[0].tainted);
    assert!(after[0].create_before_destroy, "Terraform forgot the mark");
    assert_eq!(after[0].private, before[0].private);
    assert_eq!(after[0].attributes, before[0].attributes);

    lab.set_env("LAB_BEHAVE", "1");
    lab.apply().unwrap().succeeded();
    assert_eq!(lab.state().unwrap().objects.len(), 0);
}

#[test]
fn failed_destroy_keeps_object_and_private_data() {
    destroy_fails_and_keeps_everything("destroy_fail", "Asked to fail", "`destroy_fail`");
}

#[test]
fn destroy_without_result_keeps_object() {
    destroy_fails_and_keeps_everything(
        "destroy_none",
        "Provider bug",
        "destroy of lab_probe returned no result and no error",
    );
}

#[test]
fn panicking_destroy_keeps_object() {
    destroy_fails_and_keeps_everything("destroy_panic", "Provider bug", "boom in destroy");
}

#[track_caller]
fn update_fails_and_is_planned_again(mode: &str, summary: &str, part_of_detail: &str) {
    let lab = lab(&probe("p", ""));
    lab.apply().unwrap().succeeded();
    let before = lab.state().unwrap().objects;
    lab.write("main.tf", &crate::lab_probe::with_header(&probe("p", &format!("mode = \"{mode}\"")))).unwrap();
    assert_error(lab.apply().unwrap(), summary, part_of_detail);
    let after = lab.state().unwrap().objects;
    assert_eq!(after[0].attributes, before[0].attributes);
    assert_eq!(after[0].private, before[0].private);
    assert!(!after[0].tainted);
    assert_eq!(lab.plan().unwrap().succeeded().planned(), ["update lab_probe.p"]);
}

#[test]
fn failed_update_is_planned_again() {
    update_fails_and_is_planned_again("update_fail", "Asked to fail", "`update_fail`");
}

#[test]
fn panicking_update_is_planned_again() {
    update_fails_and_is_planned_again("update_panic", "Provider bug", "boom in update");
}

#[test]
fn read_without_result_is_a_bug() {
    let (lab, run) = apply_in("read_none");
    run.succeeded();
    assert_error(lab.plan().unwrap(), "Provider bug", "read of lab_probe returned no result and no error");
    assert_eq!(lab.state().unwrap().objects.len(), 1);
}

#[test]
fn read_of_missing_object_plans_create() {
    let (lab, run) = apply_in("gone");
    run.succeeded();
    assert_eq!(lab.plan().unwrap().succeeded().planned(), ["create lab_probe.p"]);
}

#[test]
fn destroy_can_fail_or_warn_at_plan() {
    let (lab, run) = apply_in("refuse_destroy");
    run.succeeded();
    assert_error(lab.run(["plan", "-destroy", "-json"]).unwrap(), "Destroy refused", "`refuse_destroy`");

    let (lab, run) = apply_in("warn_destroy");
    run.succeeded();
    let plan = lab.run(["plan", "-destroy", "-json"]).unwrap().succeeded();
    assert_eq!(plan.warnings(), [("Destroy will hurt", "The mode is `warn_destroy`.\n\nCode: lab")]);
}
