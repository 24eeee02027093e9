# Deployment version 2: one apply creates it, waits until it is healthy, and shuts down the runners of version 1.

resource "aws_instance" "manager" {
  for_each = var.managers

  ami           = each.value.ami
  instance_type = each.value.instance_type

  # To change the type, AWS stops an instance, and its jobs are lost. The user data contains the type, so another type replaces the instance.
  user_data                   = "${each.value.user_data}\n# ${each.value.instance_type}\n"
  user_data_replace_on_change = true

  tags = {
    Name = each.key
  }

  lifecycle {
    create_before_destroy = true
  }
}

# The next version can retire this one with either layout: destroy drains the runners that are still running.
resource "grit_runner_drain" "manager" {
  for_each = var.managers

  instance_id = aws_instance.manager[each.key].id

  runner_manager = {
    instance_name   = each.key
    address         = aws_instance.manager[each.key].private_ip
    wrapper_address = "unix:///run/grit-wrapper/gitlab-runner.service.sock"
  }

  lifecycle {
    create_before_destroy = true
  }
}

resource "grit_runner_health" "all" {
  runner_managers = { for key, drain in grit_runner_drain.manager : key => drain.runner_manager }
  drains          = { for key, drain in grit_runner_drain.manager : key => drain.id }

  lifecycle {
    create_before_destroy = true
  }
}

# Read only while `old_directory` is set. A directory without the output is an error: its runners would keep running.
data "grit_deployment" "old" {
  count = var.old_directory == null ? 0 : 1

  directory = var.old_directory
}

resource "grit_runner_shutdown" "old" {
  runner_managers = try(data.grit_deployment.old[0].runner_managers, {})
  wait            = var.wait

  depends_on = [grit_runner_health.all]
}

output "grit_runner_managers" {
  description = "The runner managers of this deployment version."
  value = {
    for key, instance in aws_instance.manager : key => {
      instance_id     = instance.id
      instance_name   = key
      address         = instance.private_ip
      wrapper_address = "unix:///run/grit-wrapper/gitlab-runner.service.sock"
    }
  }
}
