variable "managers" {
  description = "The runner managers. The key contains manager and version, for example `blue-v1`."
  type = map(object({
    image             = string
    instance_template = string
  }))
}

variable "subnetwork" {
  description = "Subnetwork of all instances."
  type        = string
}

variable "runner_token" {
  description = "Runner authentication token."
  type        = string
  sensitive   = true
}

variable "deploy_public_key" {
  description = "SSH public key of the deploy user. The provider has the private key."
  type        = string
}
