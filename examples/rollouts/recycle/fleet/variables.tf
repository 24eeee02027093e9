variable "revisions" {
  description = "The runner managers, each with the date of its last replacement. The scheduled job changes it."
  type        = map(string)
}

variable "ami" {
  description = "Image with GitLab Runner and grit-wrapper."
  type        = string
}

variable "subnet_id" {
  description = "Subnet of the runner managers."
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
  description = "SSH public key of the deploy user."
  type        = string
}
