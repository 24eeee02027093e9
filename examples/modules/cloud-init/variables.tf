variable "name" {
  description = "Name of the runner manager, which GitLab shows."
  type        = string
  nullable    = false
}

variable "generation" {
  description = "Identifier of this configuration. It is part of the user data, so that another value replaces the instance."
  type        = string
  default     = ""
  nullable    = false

  # It is a comment of a unit file.
  validation {
    condition     = !can(regex("[\r\n]", var.generation))
    error_message = "It must be one line."
  }
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

variable "listen_address" {
  description = "Address of the runner's HTTP server. The wrapper reads the runner's health from it."
  type        = string
  default     = "127.0.0.1:9252"
  nullable    = false

  validation {
    condition     = var.listen_address != ""
    error_message = "Without an HTTP server the wrapper cannot check more than that the process runs."
  }
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

variable "host_key" {
  description = "SSH host key of the instance: an ED25519 key pair in OpenSSH format."
  type = object({
    private = string
    public  = string
  })
  sensitive = true
  nullable  = false
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

  # Another line, or options before the type, would be a key without the restrictions of the deploy user.
  validation {
    condition     = alltrue([for key in var.deploy_public_keys : can(regex("^(ssh|ecdsa|sk)-[a-z0-9@.-]+ [^\r\n]+$", trimspace(key)))])
    error_message = "Each key must be one line that begins with its type, for example ssh-ed25519."
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

variable "install_fleeting" {
  description = "Install the fleeting plugins that the configuration names."
  type        = bool
  default     = false
  nullable    = false
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
