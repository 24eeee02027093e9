# The graph of drains.tf with resources that need no provider process.

resource "terraform_data" "instance" {
  for_each = var.managers

  input            = each.value
  triggers_replace = each.value.address

  lifecycle {
    create_before_destroy = true
  }
}

resource "terraform_data" "drain" {
  for_each = var.managers

  triggers_replace = terraform_data.instance[each.key].id

  input = {
    instance_name   = each.value.instance_name
    address         = terraform_data.instance[each.key].output.address
    wrapper_address = terraform_data.instance[each.key].output.wrapper_address
  }

  lifecycle {
    create_before_destroy = true
  }
}

resource "terraform_data" "health" {
  input = {
    runner_managers = { for key, drain in terraform_data.drain : key => drain.output }
    drains          = { for key, drain in terraform_data.drain : key => drain.id }
  }

  lifecycle {
    create_before_destroy = true
  }
}
