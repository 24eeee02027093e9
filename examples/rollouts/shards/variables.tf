variable "shards" {
  description = "The shards by name: number of managers, version, and their instances."
  type = map(object({
    managers      = number
    version       = string
    ami           = string
    instance_type = string
    user_data     = string
  }))
  nullable = false
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
