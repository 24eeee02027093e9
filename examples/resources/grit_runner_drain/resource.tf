resource "grit_runner_drain" "example" {
  # Ties the drain to its instance: a new instance has a new drain, and the old runner drains before the old instance is destroyed.
  instance_id = aws_instance.example.id

  runner_manager = {
    instance_name   = aws_instance.example.tags["Name"]
    address         = aws_instance.example.private_ip
    wrapper_address = "unix:///run/grit-wrapper/wrapper.sock"
  }

  timeouts = {
    delete = "6h"
  }

  lifecycle {
    create_before_destroy = true
  }
}
