resource "grit_runner_drain" "example" {
  # Ties the guard to its instance: a new instance gets a new guard, and the old guard drains before the old instance goes.
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
