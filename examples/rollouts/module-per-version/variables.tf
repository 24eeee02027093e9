variable "versions" {
  description = "Deployment versions, each a map of runner managers by name."
  type = map(map(object({
    ami           = string
    instance_type = string
    user_data     = string
  })))
  nullable = false
}

variable "active_versions" {
  description = "The versions to run: usually one, two during a rollout in two applies."
  type        = set(string)
  nullable    = false

  validation {
    condition     = length(var.active_versions) > 0
    error_message = "Set at least one version. To remove everything, run terraform destroy."
  }
}

variable "health_timeout" {
  description = "How long a rollout waits for the new managers."
  type        = string
  default     = "10m"
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
