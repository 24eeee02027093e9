# One manager first. The others are created after the canary has been healthy for `soak`, and the old runners are drained after all are healthy.

locals {
  canary = { "${var.canary}-${var.active_version}" = var.versions[var.active_version][var.canary] }

  rest = {
    for name, manager in var.versions[var.active_version] : "${name}-${var.active_version}" => manager if name != var.canary
  }

  drains = merge(grit_runner_drain.canary, grit_runner_drain.rest)
}

resource "aws_instance" "canary" {
  for_each = local.canary

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

resource "grit_runner_drain" "canary" {
  for_each = local.canary

  instance_id = aws_instance.canary[each.key].id

  runner_manager = {
    instance_name   = each.key
    address         = aws_instance.canary[each.key].private_ip
    wrapper_address = "unix:///run/grit-wrapper/gitlab-runner.service.sock"
  }

  lifecycle {
    create_before_destroy = true
  }
}

resource "grit_runner_health" "canary" {
  runner_managers = { for key, drain in grit_runner_drain.canary : key => drain.runner_manager }
  drains          = { for key, drain in grit_runner_drain.canary : key => drain.id }
  stable_for      = var.soak

  timeouts = {
    create = var.health_timeout
    update = var.health_timeout
  }

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_instance" "rest" {
  for_each = local.rest

  ami           = each.value.ami
  instance_type = each.value.instance_type

  # To change the type, AWS stops an instance, and its jobs are lost. The user data contains the type, so another type replaces the instance.
  user_data                   = "${each.value.user_data}\n# ${each.value.instance_type}\n"
  user_data_replace_on_change = true

  tags = {
    Name = each.key
  }

  depends_on = [grit_runner_health.canary]

  lifecycle {
    create_before_destroy = true
  }
}

resource "grit_runner_drain" "rest" {
  for_each = local.rest

  instance_id = aws_instance.rest[each.key].id

  runner_manager = {
    instance_name   = each.key
    address         = aws_instance.rest[each.key].private_ip
    wrapper_address = "unix:///run/grit-wrapper/gitlab-runner.service.sock"
  }

  lifecycle {
    create_before_destroy = true
  }
}

# All drains wait for this health check, also the drain of the old canary.
resource "grit_runner_health" "all" {
  runner_managers = { for key, drain in local.drains : key => drain.runner_manager }
  drains          = { for key, drain in local.drains : key => drain.id }
  start_drains    = true

  timeouts = {
    create = var.health_timeout
    update = var.health_timeout
  }

  lifecycle {
    create_before_destroy = true
  }
}
