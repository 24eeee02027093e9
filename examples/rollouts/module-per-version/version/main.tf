resource "aws_instance" "manager" {
  for_each = var.managers

  ami           = each.value.ami
  instance_type = each.value.instance_type

  # To change the type, AWS stops an instance, and its jobs are lost. The user data contains the type, so another type replaces the instance.
  user_data                   = "${each.value.user_data}\n# ${each.value.instance_type}\n"
  user_data_replace_on_change = true

  tags = {
    Name = "${each.key}-${var.name}"
  }

  lifecycle {
    create_before_destroy = true
  }
}

resource "grit_runner_drain" "manager" {
  for_each = var.managers

  instance_id = aws_instance.manager[each.key].id

  runner_manager = {
    instance_name   = "${each.key}-${var.name}"
    address         = aws_instance.manager[each.key].private_ip
    wrapper_address = "unix:///run/grit-wrapper/gitlab-runner.service.sock"
  }

  lifecycle {
    create_before_destroy = true
  }
}
