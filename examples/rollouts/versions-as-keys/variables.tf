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
  description = "The versions that run. Usually one; two during a two-step roll."
  type        = set(string)
  nullable    = false

  validation {
    condition     = length(var.active_versions) > 0
    error_message = "Name at least one version; to take everything down, run terraform destroy."
  }
}

variable "deploy_key_path" {
  description = "File with the private key of the deploy user. Without it, GRIT_SSH_PRIVATE_KEY and the like are used."
  type        = string
  default     = null
}

variable "host_keys" {
  description = "Public host keys of the managers, for example one that user data or the image gives to all of them."
  type        = list(string)
  nullable    = false
}
