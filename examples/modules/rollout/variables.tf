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
  description = "Settings of the health check: see `grit_runner_health`."
  type = object({
    level            = optional(string, "polling")
    min_jobs         = optional(number)
    stable_for       = optional(string, "0s")
    expected_version = optional(string)
    start_if_stopped = optional(bool, false)
    start_drains     = optional(bool, true)
    timeout          = optional(string, "15m")
  })
  default  = {}
  nullable = false
}

variable "drain" {
  description = "Settings of the drains: see `grit_runner_drain`."
  type = object({
    mode           = optional(string, "graceful")
    on_timeout     = optional(string, "fail")
    on_unreachable = optional(string, "fail")
    timeout        = optional(string, "3h")
  })
  default  = {}
  nullable = false
}
