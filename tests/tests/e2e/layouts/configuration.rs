//! Parts of Terraform configurations: an instance of the lab, its drain resource, and a health check.

/// The version that boots immediately.
pub(super) const OLD: &str = "19.2.1";
/// The new version of a rollout.
pub(super) const NEW: &str = "19.2.2";

/// The line that makes the difference in most of these cases.
pub(super) const CREATE_FIRST: &str = "lifecycle {\n    create_before_destroy = true\n  }";

/// A static `lab_instance`. Its name is the name of its host; the second host of that name gets the suffix `.2`.
pub(super) fn instance(name: &str, version: &str, more: &str) -> String {
    format!(
        r#"
resource "lab_instance" "{name}" {{
  name           = "{name}"
  runner_version = "{version}"
  {more}
}}
"#
    )
}

/// A static `grit_runner_drain` on the instance of the same name.
pub(super) fn drain(name: &str, more: &str) -> String {
    drain_with(name, &format!("lab_instance.{name}.id"), more)
}

/// A static `grit_runner_drain` on the instance of the same name, with another expression for `instance_id`.
pub(super) fn drain_with(name: &str, instance_id: &str, more: &str) -> String {
    let manager = manager(&format!("lab_instance.{name}"));
    format!(
        r#"
resource "grit_runner_drain" "{name}" {{
  instance_id    = {instance_id}
  runner_manager = {manager}
  timeouts       = {{ delete = "60s" }}
  {more}
}}
"#
    )
}

/// The entry of an instance in a map of runner managers.
pub(super) fn manager(instance: &str) -> String {
    let attribute = |name: &str| format!("    {name} = {instance}.{name}\n");
    let attributes = ["instance_name", "address", "wrapper_address", "username", "host_key"].map(attribute);
    format!("{{\n{}  }}", attributes.concat())
}

/// A health check; `of` is the rest of the block.
pub(super) fn health_check(name: &str, of: &str, timeout: &str, more: &str) -> String {
    format!(
        r#"
resource "grit_runner_health" "{name}" {{
  {of}
  timeouts = {{ create = "{timeout}", update = "{timeout}" }}
  {more}
}}
"#
    )
}

/// The arguments of a health check that refers to a drain resource: this reference orders a rollout.
pub(super) fn over_the_drain(drain: &str) -> String {
    format!(
        "runner_managers = {{ m = grit_runner_drain.{drain}.runner_manager }}\n  drains = {{ m = grit_runner_drain.{drain}.id }}"
    )
}

/// The arguments of a health check that refers to the instance and not to its drain resource.
pub(super) fn over_the_instance(instance: &str) -> String {
    format!("runner_managers = {{ m = {} }}", manager(&format!("lab_instance.{instance}")))
}
