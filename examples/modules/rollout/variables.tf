variable "runner_managers" {
  description = "Runner managers of all active deployment versions. The key contains manager and version (`blue-v2`): a new version has new keys. `worker_group` is the name of the autoscaling group in which the manager runs jobs."
  type = map(object({
    instance_id     = string
    instance_name   = string
    address         = string
    wrapper_address = string
    username        = optional(string)
    ssh_key_pem     = optional(string)
    host_key        = optional(string)
    worker_group    = optional(string)
  }))
  nullable = false

  validation {
    condition     = length(var.runner_managers) > 0
    error_message = "Set at least one runner manager: an empty map would drain all runners. To remove everything, run terraform destroy."
  }
}

variable "health" {
  description = "Attributes of `grit_runner_health`: `level`, `min_jobs`, `stable_for`, `expected_version`, `start_if_stopped`, `start_drains` (default `true`), `retry`, `triggers`, and `timeout` (default `15m`). Other attributes are refused."
  type        = any
  default     = {}
  nullable    = false

  # Terraform drops an attribute that an object type does not have, without a message. Therefore the type is any.
  validation {
    condition = length(setsubtract(keys(var.health), [
      "level", "min_jobs", "stable_for", "expected_version", "start_if_stopped", "start_drains", "retry", "triggers", "timeout",
    ])) == 0
    error_message = "Unknown attribute. See the description of the input in the README of the module."
  }

  validation {
    condition     = length(setsubtract(try(keys(var.health.retry), []), ["attempts"])) == 0
    error_message = "Unknown attribute in retry. It has attempts."
  }
}

variable "drain" {
  description = "Attributes of `grit_runner_drain`: `mode`, `on_timeout`, `on_unreachable`, `on_lost_jobs`, `reason`, `retry`, and `timeout` (default `3h`). Other attributes are refused."
  type        = any
  default     = {}
  nullable    = false

  # As in health.
  validation {
    condition = length(setsubtract(keys(var.drain), [
      "mode", "on_timeout", "on_unreachable", "on_lost_jobs", "reason", "retry", "timeout",
    ])) == 0
    error_message = "Unknown attribute. See the description of the input in the README of the module."
  }

  validation {
    condition     = length(setsubtract(try(keys(var.drain.retry), []), ["attempts"])) == 0
    error_message = "Unknown attribute in retry. It has attempts."
  }
}
