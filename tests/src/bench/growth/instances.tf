# The managers of maps.tf, as instances.

variable "managers" {
  type = map(object({
    instance_name   = string
    address         = string
    wrapper_address = string
  }))
}

resource "terraform_data" "instance" {
  for_each = var.managers
  input    = each.value
}
