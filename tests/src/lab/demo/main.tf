# The rollout of the demo: one root module, deployment versions as keys (docs/guides/rollout.md explains this shape).
# Moving `active_versions` from ["v1"] to ["v2"] is one apply: new instances and drain resources, the health check, then the drain of the old
# runners, then the end of the old instances.

locals {
  versions = {
    v1 = "19.1.0"
    v2 = "19.2.0"
  }

  managers = merge([
    for version in var.active_versions : {
      for name in ["blue", "green"] : "${name}-${version}" => local.versions[version]
    }
  ]...)
}

resource "lab_instance" "manager" {
  for_each = local.managers

  name           = each.key
  runner_version = each.value

  lifecycle {
    create_before_destroy = true
  }
}

# Drain resources come before the health check: a new version that never becomes healthy is drained, too, when it is taken back.
resource "grit_runner_drain" "manager" {
  for_each = local.managers

  instance_id = lab_instance.manager[each.key].id

  runner_manager = {
    instance_name   = lab_instance.manager[each.key].instance_name
    address         = lab_instance.manager[each.key].address
    wrapper_address = lab_instance.manager[each.key].wrapper_address
    username        = lab_instance.manager[each.key].username
    host_key        = lab_instance.manager[each.key].host_key
  }

  timeouts = {
    delete = "2m"
  }

  lifecycle {
    create_before_destroy = true
  }
}

# One health check over all. It refers to the drain resources, so the drain of an old instance waits for it.
resource "grit_runner_health" "all" {
  runner_managers = { for key, drain in grit_runner_drain.manager : key => drain.runner_manager }
  drains          = { for key, drain in grit_runner_drain.manager : key => drain.id }

  # Healthy is more than a process: the job queue accepts the job requests of every runner.
  level = "polling"

  timeouts = {
    create = "2m"
    update = "2m"
  }

  lifecycle {
    create_before_destroy = true
  }
}
