resource "grit_runner_drain" "example" {
  for_each = aws_instance.example

  # Ties the drain to its instance: a new instance has a new drain, and the old runner drains before the old instance is destroyed.
  instance_id = each.value.id

  runner_manager = {
    instance_name   = each.key
    address         = each.value.private_ip
    wrapper_address = "unix:///run/grit-wrapper/gitlab-runner.service.sock"
  }

  timeouts = {
    delete = "6h"
  }

  lifecycle {
    create_before_destroy = true
  }
}
