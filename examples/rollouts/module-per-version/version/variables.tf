variable "name" {
  description = "Name of the deployment version."
  type        = string
  nullable    = false
}

variable "managers" {
  description = "Runner managers by name."
  type = map(object({
    ami           = string
    instance_type = string
    user_data     = string
  }))
  nullable = false
}
