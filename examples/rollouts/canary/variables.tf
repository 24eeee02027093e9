variable "versions" {
  description = "Deployment versions, each a map of runner managers by name."
  type = map(map(object({
    ami           = string
    instance_type = string
    user_data     = string
  })))
  nullable = false
}

variable "active_version" {
  description = "The version to run."
  type        = string
  nullable    = false
}

variable "canary" {
  description = "Name of the manager that each rollout creates first. Every version must have a manager with this name."
  type        = string
  nullable    = false
}

variable "soak" {
  description = "How long the canary must be healthy before the other managers are created. It must be shorter than `health_timeout`."
  type        = string
  default     = "10m"
  nullable    = false
}

variable "health_timeout" {
  description = "How long a rollout waits for the canary, and again for the other managers."
  type        = string
  default     = "30m"
  nullable    = false
}

variable "deploy_key_path" {
  description = "File with the private key of the deploy user. If null, the provider uses GRIT_SSH_PRIVATE_KEY and the other GRIT_SSH_* variables."
  type        = string
  default     = null
}

variable "host_keys" {
  description = "Public host keys of the managers, for example one key that user data or the image installs on all hosts."
  type        = list(string)
  nullable    = false
}
