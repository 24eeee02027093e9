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

  mode           = try(var.drain.mode, null)
  on_timeout     = try(var.drain.on_timeout, null)
  on_unreachable = try(var.drain.on_unreachable, null)
  on_lost_jobs   = try(var.drain.on_lost_jobs, null)
  reason         = try(var.drain.reason, null)
  retry          = try(var.drain.retry, null)

  timeouts = {
    delete = try(var.drain.timeout, "3h")
  }

  lifecycle {
    create_before_destroy = true
  }
}

# It refers to the drains, so the destroy of an old drain waits for it.
resource "grit_runner_health" "this" {
  runner_managers = { for key, drain in grit_runner_drain.this : key => drain.runner_manager }
  drains          = { for key, drain in grit_runner_drain.this : key => drain.id }

  level            = try(var.health.level, null)
  min_jobs         = try(var.health.min_jobs, null)
  stable_for       = try(var.health.stable_for, null)
  expected_version = try(var.health.expected_version, null)
  start_if_stopped = try(var.health.start_if_stopped, null)
  start_drains     = try(var.health.start_drains, true)
  retry            = try(var.health.retry, null)
  triggers         = try(var.health.triggers, null)

  timeouts = {
    create = try(var.health.timeout, "15m")
    update = try(var.health.timeout, "15m")
  }

  lifecycle {
    create_before_destroy = true

    precondition {
      condition     = length(local.shared_worker_groups) == 0
      error_message = "Several runner managers have the same worker group (${join(", ", local.shared_worker_groups)}): they would delete each other's instances, and jobs would be lost. Create one group for each runner manager and version."
    }
  }
}
