# One root module, deployment versions as keys. Moving `active_versions` from ["v1"] to ["v2"] is one apply:
# new instances and guards, the health gate, then the drain of the old runners, then the end of the old instances.

locals {
  # One entry for each manager of each active version. A new version has new keys, and so new instances.
  managers = merge([
    for version in var.active_versions : {
      for name, manager in var.versions[version] : "${name}-${version}" => manager
    }
  ]...)
}

resource "aws_instance" "manager" {
  for_each = local.managers

  ami           = each.value.ami
  instance_type = each.value.instance_type
  user_data     = each.value.user_data

  tags = {
    Name = each.key
  }

  lifecycle {
    create_before_destroy = true
  }
}

# Guards come before the gate: a new version that never becomes healthy is drained, too, when it is taken back.
resource "grit_runner_drain" "manager" {
  for_each = local.managers

  instance_id = aws_instance.manager[each.key].id

  runner_manager = {
    instance_name   = each.key
    address         = aws_instance.manager[each.key].private_ip
    wrapper_address = "unix:///run/grit-wrapper/wrapper.sock"
  }

  lifecycle {
    create_before_destroy = true
  }
}

# One gate over all. It refers to the guards, so the drain of an old guard waits for it.
resource "grit_runner_health" "all" {
  runner_managers = { for key, drain in grit_runner_drain.manager : key => drain.runner_manager }
  guards          = { for key, drain in grit_runner_drain.manager : key => drain.id }

  lifecycle {
    create_before_destroy = true
  }
}
