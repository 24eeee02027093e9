variable "managers" {
  description = "Runner managers of this deployment version, by a name that contains the version."
  type = map(object({
    ami           = string
    instance_type = string
    user_data     = string
  }))
  nullable = false
}
