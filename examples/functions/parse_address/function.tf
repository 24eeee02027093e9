locals {
  address = provider::grit::parse_address("runner-1.example.com:2222")
}

output "ssh_command" {
  value = "ssh -p ${local.address.port} ${local.address.host}"
}
