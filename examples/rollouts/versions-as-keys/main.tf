# One root module, with `for_each` by deployment version. Changing `active_versions` from ["v1"] to ["v2"] is one apply:
# create the new instances and drains, wait for the health check, drain the old runners, destroy the old instances.

locals {
  # One entry for each manager of each active version. A new version has new keys, and so new instances.
  managers = merge([
    for version in var.active_versions : {
      for name, manager in var.versions[version] : "${name}-${version}" => manager
    }
  ]...)
}

resource "aws_instance" "manager" {
  for_each = local.managers

  ami           = each.value.ami
  instance_type = each.value.instance_type

  # To change the type, AWS stops an instance, and its jobs are lost. The user data contains the type, so another type replaces the instance.
  user_data                   = "${each.value.user_data}\n# ${each.value.instance_type}\n"
  user_data_replace_on_change = true

  tags = {
    Name = each.key
  }

  lifecycle {
    create_before_destroy = true
  }
}

# Drains exist before the health check runs, so a new version that never becomes healthy is also drained when it is removed.
resource "grit_runner_drain" "manager" {
  for_each = local.managers

  instance_id = aws_instance.manager[each.key].id

  runner_manager = {
    instance_name   = each.key
    address         = aws_instance.manager[each.key].private_ip
    wrapper_address = "unix:///run/grit-wrapper/gitlab-runner.service.sock"
  }

  lifecycle {
    create_before_destroy = true
  }
}

# One health check over all managers. It refers to the drains, so the destroy of an old drain waits for it.
resource "grit_runner_health" "all" {
  runner_managers = { for key, drain in grit_runner_drain.manager : key => drain.runner_manager }
  drains          = { for key, drain in grit_runner_drain.manager : key => drain.id }
  start_drains    = true

  timeouts = {
    create = var.health_timeout
    update = var.health_timeout
  }

  lifecycle {
    create_before_destroy = true

    precondition {
      condition     = alltrue([for version in var.active_versions : length(var.versions[version]) > 0])
      error_message = "Each version of active_versions must have a manager in versions. A rollout to an empty version would drain all runners."
    }
  }
}
