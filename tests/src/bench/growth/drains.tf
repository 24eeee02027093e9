# The recommended layout: an instance and a drain for each manager, and one health check.

resource "terraform_data" "instance" {
  for_each = var.managers

  input            = each.value
  triggers_replace = each.value.address

  lifecycle {
    create_before_destroy = true
  }
}

resource "grit_runner_drain" "manager" {
  for_each = var.managers

  instance_id = terraform_data.instance[each.key].id

  runner_manager = {
    instance_name   = each.value.instance_name
    address         = terraform_data.instance[each.key].output.address
    wrapper_address = terraform_data.instance[each.key].output.wrapper_address
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
