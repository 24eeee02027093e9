# One module for each deployment version. The health check is in the root module: inside the module, Terraform would not order it against the drains of
# the other version.

module "version" {
  source   = "./version"
  for_each = var.active_versions

  name     = each.key
  managers = var.versions[each.key]
}

resource "grit_runner_health" "all" {
  runner_managers = merge([for version in module.version : version.grit_runner_managers]...)
  drains          = merge([for version in module.version : version.drains]...)
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
