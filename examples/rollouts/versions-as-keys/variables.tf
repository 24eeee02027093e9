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
