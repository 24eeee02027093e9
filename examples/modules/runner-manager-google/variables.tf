variable "name" {
  description = "Name of the runner manager: the key in `grit_runner_managers`. Use a new name for a new deployment version, for example `blue-v2`."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$", var.name))
    error_message = "It must have lowercase letters, digits and dashes, begin with a letter, and be at most 40 characters long."
  }
}

variable "zone" {
  description = "Zone of the instance and of the worker group."
  type        = string
  nullable    = false
}

variable "image" {
  description = "Image: Debian or Ubuntu with cloud-init, which the images of `debian-cloud` do not contain. A change replaces the instance."
  type        = string
  nullable    = false
}

variable "machine_type" {
  description = "Machine type."
  type        = string
  nullable    = false
}

variable "subnetwork" {
  description = "Subnetwork of the instance. The provider must reach port 22, directly or through a jump host."
  type        = string
  nullable    = false
}

variable "external_address" {
  description = "Give the instance an external address, and use it for SSH."
  type        = bool
  default     = false
  nullable    = false
}

variable "network_tags" {
  description = "Network tags of the instance."
  type        = list(string)
  default     = []
  nullable    = false
}

variable "disk_size" {
  description = "Size of the boot disk, in GiB."
  type        = number
  default     = 30
  nullable    = false
}

variable "labels" {
  description = "Labels of the instance."
  type        = map(string)
  default     = {}
  nullable    = false
}

variable "service_account" {
  description = "Service account of the instance. With a worker group it must allow the calls of the fleeting plugin `googlecloud`. `null`: none."
  type = object({
    email  = string
    scopes = optional(list(string), ["cloud-platform"])
  })
  default = null
}

variable "worker_group" {
  description = "Instance group in which the runner manager runs its jobs (executors `docker-autoscaler` and `instance`). The module creates one group for this manager. `null`: no group."
  type = object({
    instance_template     = string
    max_instances         = number
    capacity_per_instance = optional(number, 1)
    max_use_count         = optional(number, 1)
    idle_count            = optional(number, 0)
    idle_time             = optional(string, "20m0s")
    username              = optional(string, "runner")
  })
  default = null
}

variable "termination_protection" {
  description = "Google Cloud refuses to terminate the instance, also with `-target`. Set `false` for the managers of the old version, apply, and then roll out."
  type        = bool
  default     = false
  nullable    = false
}

variable "revision" {
  description = "Another value replaces the runner manager and its worker group, without another change. Do not replace the instance with `-replace`."
  type        = string
  default     = ""
  nullable    = false
}

variable "gitlab_url" {
  description = "URL of the GitLab instance."
  type        = string
  default     = "https://gitlab.com"
  nullable    = false
}

variable "runner_token" {
  description = "Runner authentication token (`glrt-…`)."
  type        = string
  sensitive   = true
  nullable    = false
}

variable "executor" {
  description = "Executor of the runner."
  type        = string
  nullable    = false
}

variable "concurrent" {
  description = "Maximum number of jobs at the same time."
  type        = number
  nullable    = false

  validation {
    condition     = var.concurrent >= 1 && floor(var.concurrent) == var.concurrent
    error_message = "It must be a whole number, at least 1."
  }
}

variable "runners_config" {
  description = "TOML of the `[[runners]]` section: further settings first, then tables such as `[runners.docker]`."
  type        = string
  default     = ""
  nullable    = false
}

variable "global_config" {
  description = "TOML of the global section: further settings such as `check_interval`."
  type        = string
  default     = ""
  nullable    = false
}

variable "boot_verify_timeout" {
  description = "Timeout of the synthetic job that the runner executes before it reports that it is ready. `null` disables it. Ignored by GitLab Runner before 19.2."
  type        = string
  default     = "5m"
}

variable "metrics" {
  description = "Who can read the metrics of the wrapper, on port 9253: `host` (an agent on the instance) or `network` (also other hosts, without authentication: let the firewall allow only the Prometheus server). `null`: the wrapper serves no metrics."
  type        = string
  default     = null

  validation {
    condition     = var.metrics == null ? true : contains(["host", "network"], var.metrics)
    error_message = "It must be host, network or null."
  }
}

variable "deploy_user" {
  description = "User that the provider logs in as. It can reach only the socket of the wrapper."
  type        = string
  default     = "deploy"
  nullable    = false

  validation {
    condition     = can(regex("^[a-z_][a-z0-9_-]{0,31}$", var.deploy_user))
    error_message = "It must be the name of a Linux user."
  }
}

variable "deploy_public_keys" {
  description = "SSH public keys of the deploy user."
  type        = list(string)
  nullable    = false

  validation {
    condition     = length(var.deploy_public_keys) > 0
    error_message = "Set at least one key. Without it, the provider cannot connect."
  }
}

variable "install_runner" {
  description = "Shell commands that install GitLab Runner. They run only if the image does not have it."
  type        = list(string)
  default = [
    "curl --fail --silent --show-error --location --retry 10 https://packages.gitlab.com/install/repositories/runner/gitlab-runner/script.deb.sh | bash",
    "apt-get install --yes gitlab-runner",
  ]
  nullable = false
}

variable "wrapper_package" {
  description = "Debian package of grit-wrapper. It is installed only if the image does not have it. `null`: the image has it."
  type = object({
    url    = string
    sha256 = string
  })
  default = null

  validation {
    condition     = var.wrapper_package == null ? true : can(regex("^https://[^'[:space:]]+$", var.wrapper_package.url)) && can(regex("^[0-9a-f]{64}$", var.wrapper_package.sha256))
    error_message = "It must have an https:// URL, and a SHA-256 checksum of 64 hexadecimal digits."
  }
}
