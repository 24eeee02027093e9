variable "managers" {
  description = "The runner managers. The key contains manager and version, for example `blue-v1`."
  type = map(object({
    ami                = string
    launch_template_id = string
  }))
}

variable "subnet_id" {
  description = "Subnet of all instances."
  type        = string
}

variable "security_group_ids" {
  description = "Security groups of the runner managers."
  type        = list(string)
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
