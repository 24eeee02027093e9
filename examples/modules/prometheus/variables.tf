variable "runner_managers" {
  description = "Runner managers of all active deployment versions: the map of the module `rollout`. Further attributes are ignored. `metrics_address` is the `host:port` of the wrapper's metrics, by default the host of `address` with `metrics_port`."
  type = map(object({
    instance_name   = string
    address         = string
    instance_id     = optional(string)
    metrics_address = optional(string)
    labels          = optional(map(string), {})
  }))
  nullable = false

  validation {
    condition = alltrue([
      for name in flatten([for manager in var.runner_managers : keys(manager.labels)]) : can(regex("^[a-zA-Z_][a-zA-Z0-9_]*$", name))
    ])
    error_message = "The name of a label has letters, digits and underscores, and does not begin with a digit."
  }

  validation {
    condition = alltrue([for manager in var.runner_managers : length(setintersection(keys(manager.labels), [
      "instance", "instance_id", "instance_name", "job", "mode", "outcome", "result", "revision", "state", "version",
    ])) == 0])
    error_message = "Labels cannot have a name that the metrics of the wrapper or this module use, such as job, instance or state: the alerts would not find their metrics."
  }
}

variable "metrics_port" {
  description = "Port of `--http-listen` of the wrappers."
  type        = number
  default     = 9253
  nullable    = false
}

variable "labels" {
  description = "Labels of all targets, such as `environment`. Names of labels that the metrics or the module use are refused, such as `job`, `instance` or `state`."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = alltrue([for name in keys(var.labels) : can(regex("^[a-zA-Z_][a-zA-Z0-9_]*$", name))])
    error_message = "The name of a label has letters, digits and underscores, and does not begin with a digit."
  }

  validation {
    condition = length(setintersection(keys(var.labels), [
      "instance", "instance_id", "instance_name", "job", "mode", "outcome", "result", "revision", "state", "version",
    ])) == 0
    error_message = "Labels cannot have a name that the metrics of the wrapper or this module use, such as job, instance or state: the alerts would not find their metrics."
  }
}

variable "targets_directory" {
  description = "Directory of the target files on the Prometheus server."
  type        = string
  default     = "/etc/prometheus/file_sd"
  nullable    = false
}

variable "write_targets" {
  description = "Write the target files to `targets_directory` of the machine that runs Terraform. `false`: transfer the output `targets` to your server."
  type        = bool
  default     = true
  nullable    = false
}

variable "rules_file" {
  description = "Path of the rules on the Prometheus server."
  type        = string
  default     = "/etc/prometheus/rules/grit-wrapper.rules.yml"
  nullable    = false
}

variable "drain_stalled_after" {
  description = "Seconds without a finished job after which the alert `GritWrapperDrainStalled` fires: longer than your longest job."
  type        = number
  default     = 3600
  nullable    = false

  validation {
    condition     = var.drain_stalled_after >= 3600 && floor(var.drain_stalled_after) == var.drain_stalled_after
    error_message = "It must be a whole number, at least 3600: the alert states that no job has finished for an hour."
  }
}

variable "drain_long_after" {
  description = "Seconds after which the alert `GritWrapperDrainLong` fires for a drain: longer than your drains usually take."
  type        = number
  default     = 86400
  nullable    = false

  validation {
    condition     = var.drain_long_after >= 86400 && floor(var.drain_long_after) == var.drain_long_after
    error_message = "It must be a whole number, at least 86400: the alert states that the drain has taken more than a day."
  }
}

variable "scrape" {
  description = "Settings of the scrapes. `basic_auth`, `bearer_token_file` and `tls` are for a reverse proxy in front of the wrappers, which have no authentication. Files are on the Prometheus server."
  type = object({
    interval          = optional(string, "15s")
    scheme            = optional(string, "http")
    basic_auth        = optional(object({ username = string, password_file = string }))
    bearer_token_file = optional(string)
    tls               = optional(object({ ca_file = optional(string), cert_file = optional(string), key_file = optional(string), server_name = optional(string) }))
  })
  default  = {}
  nullable = false

  validation {
    condition     = contains(["http", "https"], var.scrape.scheme)
    error_message = "The scheme must be http or https."
  }

  validation {
    condition     = var.scrape.basic_auth == null || var.scrape.bearer_token_file == null
    error_message = "Set either basic_auth or bearer_token_file."
  }
}

variable "remote_write" {
  description = "Server that receives all samples, such as Mimir. `tenant` becomes the header `X-Scope-OrgID`. `null`: none."
  type = object({
    url               = string
    tenant            = optional(string)
    basic_auth        = optional(object({ username = string, password_file = string }))
    bearer_token_file = optional(string)
  })
  default = null
}
