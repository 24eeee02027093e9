# A fleet of shards from one map. Each shard has a version, and its managers have keys with shard, number and version.

locals {
  managers = merge([
    for shard, settings in var.shards : {
      for number in range(settings.managers) : "${shard}-${number + 1}-${settings.version}" => settings
    }
  ]...)
}

resource "aws_instance" "manager" {
  for_each = local.managers

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

resource "grit_runner_drain" "manager" {
  for_each = local.managers

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

# One health check over all shards: Terraform orders resources, not single keys, so a health check for each shard would not isolate the shards.
resource "grit_runner_health" "all" {
  runner_managers = { for key, drain in grit_runner_drain.manager : key => drain.runner_manager }
  drains          = { for key, drain in grit_runner_drain.manager : key => drain.id }
  start_drains    = true

  timeouts = {
    create = var.health_timeout
    update = var.health_timeout
  }

  lifecycle {
    create_before_destroy = true
  }
}
