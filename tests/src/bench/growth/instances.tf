# The managers of maps.tf, as instances.

resource "terraform_data" "instance" {
  for_each = var.managers
  input    = each.value
}
