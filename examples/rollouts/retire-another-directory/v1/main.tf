# Deployment version 1, as the Deployer manages it: instances and the output `grit_runner_managers`. It has no resource of the provider grit.

resource "aws_instance" "manager" {
  for_each = var.managers

  ami           = each.value.ami
  instance_type = each.value.instance_type
  user_data     = each.value.user_data

  tags = {
    Name = each.key
  }
}

output "grit_runner_managers" {
  description = "The runner managers, in the format that the Deployer reads."
  value = {
    for key, instance in aws_instance.manager : key => {
      instance_id     = instance.id
      instance_name   = key
      address         = instance.private_ip
      wrapper_address = "unix:///run/grit-wrapper/gitlab-runner.service.sock"
    }
  }
}
