variable "colours" {
  description = "Runner managers by name, for each colour. Their instances stay."
  type = map(map(object({
    ami           = string
    instance_type = string
    user_data     = string
  })))
  nullable = false
}

variable "active" {
  description = "The colour whose runners accept jobs."
  type        = string
  nullable    = false

  validation {
    condition     = contains(["blue", "green"], var.active)
    error_message = "Set blue or green."
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
