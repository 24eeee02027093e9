# Pass the same map to this module and to the rollout. `depends_on` keeps the target of an old manager until its drain has ended.
module "prometheus" {
  source = "../.."

  runner_managers   = local.runner_managers
  targets_directory = "/etc/prometheus/file_sd"
  labels            = { environment = "production" }
}

module "rollout" {
  source = "../../../rollout"

  runner_managers = local.runner_managers

  depends_on = [module.prometheus]
}

locals {
  runner_managers = {
    for key, instance in aws_instance.manager : key => {
      instance_id     = instance.id
      instance_name   = key
      address         = instance.private_ip
      wrapper_address = "unix:///run/grit-wrapper/gitlab-runner.service.sock"
    }
  }
}

resource "aws_instance" "manager" {
  for_each = var.instances

  ami           = each.value
  instance_type = var.instance_type

  # To change the type, AWS stops an instance, and its jobs are lost. The user data contains the type, so another type replaces the instance.
  user_data                   = "#cloud-config\n# ${var.instance_type}\n"
  user_data_replace_on_change = true

  lifecycle {
    create_before_destroy = true
  }
}

variable "instances" {
  description = "The image of each runner manager. The key contains manager and version, for example `blue-v2`."
  type        = map(string)
}

variable "instance_type" {
  description = "Type of the instances."
  type        = string
  default     = "t3.small"
}

# For provisioning of the Prometheus server.
output "prometheus_config" {
  value = module.prometheus.prometheus_config
}

output "dashboard" {
  value = module.prometheus.dashboard
}
