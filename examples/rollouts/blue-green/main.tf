# Permanent instances of two colours. Health check and drains exist only for the active colour: a switch starts its runners, waits until they are healthy,
# and drains the runners of the other colour.

locals {
  instances = merge([
    for colour, managers in var.colours : {
      for name, manager in managers : "${colour}-${name}" => merge(manager, { colour = colour })
    }
  ]...)

  active = {
    for key, manager in local.instances : key => {
      instance_name   = key
      address         = aws_instance.manager[key].private_ip
      wrapper_address = "unix:///run/grit-wrapper/gitlab-runner.service.sock"
    } if manager.colour == var.active
  }
}

resource "aws_instance" "manager" {
  for_each = local.instances

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

resource "grit_runner_health" "active" {
  for_each = toset([var.active])

  runner_managers  = local.active
  start_if_stopped = true

  timeouts = {
    create = var.health_timeout
    update = var.health_timeout
  }

  lifecycle {
    create_before_destroy = true

    precondition {
      condition     = length(local.active) > 0
      error_message = "The colour of active must have a manager in colours. A switch to an empty colour would drain all runners."
    }
  }
}

resource "grit_runner_drain" "active" {
  for_each = local.active

  instance_id    = aws_instance.manager[each.key].id
  runner_manager = each.value

  # The drains of the other colour are destroyed after the health check of this one.
  depends_on = [grit_runner_health.active]

  lifecycle {
    create_before_destroy = true
  }
}
