variable "managers" {
  description = "Runner managers of this deployment version, by a name that contains the version."
  type = map(object({
    ami           = string
    instance_type = string
    user_data     = string
  }))
  nullable = false
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
