# Versions as keys, in one root module, with settings for tests. `tests/tests/e2e/example.rs` applies the example itself.

variable "managers" {
  description = "Runner version of each manager, by a key that names the version, too."
  type        = map(string)
}

variable "health" {
  description = "What tests set on the health check."
  type = object({
    create           = optional(string, "60s")
    update           = optional(string, "60s")
    stable_for       = optional(string)
    start_drains     = optional(bool)
    start_if_stopped = optional(bool)
  })
  default = {}
}

variable "drain" {
  description = "What tests set on the drains."
  type = object({
    delete         = optional(string, "60s")
    mode           = optional(string)
    on_timeout     = optional(string)
    on_unreachable = optional(string)
    attempts       = optional(number)
  })
  default = {}
}

resource "lab_instance" "manager" {
  for_each = var.managers

  name           = each.key
  runner_version = each.value

  lifecycle {
    create_before_destroy = true
  }
}

resource "grit_runner_drain" "manager" {
  for_each = var.managers

  instance_id = lab_instance.manager[each.key].id

  runner_manager = {
    instance_name   = lab_instance.manager[each.key].instance_name
    address         = lab_instance.manager[each.key].address
    wrapper_address = lab_instance.manager[each.key].wrapper_address
    username        = lab_instance.manager[each.key].username
    host_key        = lab_instance.manager[each.key].host_key
  }

  mode           = var.drain.mode
  on_timeout     = var.drain.on_timeout
  on_unreachable = var.drain.on_unreachable

  retry = {
    attempts = var.drain.attempts
  }

  timeouts = {
    delete = var.drain.delete
  }

  lifecycle {
    create_before_destroy = true
  }
}

resource "grit_runner_health" "all" {
  runner_managers  = { for key, drain in grit_runner_drain.manager : key => drain.runner_manager }
  drains           = { for key, drain in grit_runner_drain.manager : key => drain.id }
  stable_for       = var.health.stable_for
  start_drains     = var.health.start_drains
  start_if_stopped = var.health.start_if_stopped

  timeouts = {
    create = var.health.create
    update = var.health.update
  }

  lifecycle {
    create_before_destroy = true
  }
}
