variable "managers" {
  type = map(object({
    instance_name   = string
    address         = string
    wrapper_address = string
  }))
}
