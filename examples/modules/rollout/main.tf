locals {
  worker_groups = [
    for manager in values(var.runner_managers) : manager.worker_group if manager.worker_group != null && manager.worker_group != ""
  ]
  shared_worker_groups = toset([
    for group in local.worker_groups : group if length([for other in local.worker_groups : other if other == group]) > 1
  ])
}

# Each drain is tied to its instance. Drains exist before the health check runs, so a new version that never becomes healthy is also
# drained when it is removed.
resource "grit_runner_drain" "this" {
  for_each = var.runner_managers

  instance_id = each.value.instance_id

  runner_manager = {
    instance_name   = each.value.instance_name
    address         = each.value.address
    wrapper_address = each.value.wrapper_address
    username        = each.value.username
    ssh_key_pem     = each.value.ssh_key_pem
    instance_id     = each.value.instance_id
    host_key        = each.value.host_key
  }

  mode           = var.drain.mode
  on_timeout     = var.drain.on_timeout
  on_unreachable = var.drain.on_unreachable

  timeouts = {
    delete = var.drain.timeout
  }

  lifecycle {
    create_before_destroy = true
  }
}

# It refers to the drains, so the destroy of an old drain waits for it.
resource "grit_runner_health" "this" {
  runner_managers = { for key, drain in grit_runner_drain.this : key => drain.runner_manager }
  guards          = { for key, drain in grit_runner_drain.this : key => drain.id }

  level            = var.health.level
  min_jobs         = var.health.min_jobs
  stable_for       = var.health.stable_for
  expected_version = var.health.expected_version
  start_if_stopped = var.health.start_if_stopped
  start_drains     = var.health.start_drains

  timeouts = {
    create = var.health.timeout
    update = var.health.timeout
  }

  lifecycle {
    create_before_destroy = true

    precondition {
      condition     = length(local.shared_worker_groups) == 0
      error_message = "Several runner managers have the same worker group (${join(", ", local.shared_worker_groups)}): they would delete each other's instances, and jobs would be lost. Create one group for each runner manager and version."
    }
  }
}
