variable "managers" {
  description = "Runner managers of this deployment version, by a name that contains the version."
  type = map(object({
    ami           = string
    instance_type = string
    user_data     = string
  }))
  nullable = false
}

variable "successors" {
  description = "`grit_runner_managers` of the next deployment version. If it is set, a runner drains only while one of them is healthy."
  type = map(object({
    instance_name   = string
    address         = string
    wrapper_address = string
  }))
  nullable = false
  default  = {}
}
