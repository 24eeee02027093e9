# A directory for each version: the new managers must be healthy, then the managers of the previous version are shut down. All managers of a
# version are in one map of one resource.

variable "previous" {
  type = map(object({
    instance_name   = string
    address         = string
    wrapper_address = string
  }))
  default = {}
}

resource "grit_runner_health" "all" {
  runner_managers = var.managers
}

resource "grit_runner_shutdown" "previous" {
  runner_managers = var.previous

  depends_on = [grit_runner_health.all]
}
