variable "managers" {
  type = map(string)
}

variable "metrics" {
  type = map(string)
}

variable "prometheus" {
  type = string
}

module "prometheus" {
  source = "./modules/prometheus"

  runner_managers   = local.runner_managers
  targets_directory = "${var.prometheus}/targets"
  rules_file        = "${var.prometheus}/grit-wrapper.rules.yml"
  scrape            = { interval = "200ms" }
}

module "rollout" {
  source = "./modules/rollout"

  runner_managers = local.runner_managers

  depends_on = [module.prometheus, terraform_data.last_scrape]
}

locals {
  runner_managers = {
    for key, instance in lab_instance.manager : key => {
      instance_id     = instance.id
      instance_name   = instance.instance_name
      address         = instance.address
      wrapper_address = instance.wrapper_address
      username        = instance.username
      host_key        = instance.host_key
      metrics_address = var.metrics[key]
    }
  }
}

resource "lab_instance" "manager" {
  for_each = var.managers

  name           = each.key
  runner_version = each.value

  lifecycle {
    create_before_destroy = true
  }
}

output "prometheus_config" {
  value = module.prometheus.prometheus_config
}
