# Two runner managers that already have instances. To roll out a new version, add its instances, replace the entries, and apply once.
module "rollout" {
  source = "../.."

  runner_managers = {
    for key, instance in aws_instance.manager : key => {
      instance_id     = instance.id
      instance_name   = key
      address         = instance.private_ip
      wrapper_address = "unix:///run/grit-wrapper/gitlab-runner.service.sock"
    }
  }

  health = { stable_for = "30s" }
  drain  = { timeout = "6h" }
}

resource "aws_instance" "manager" {
  for_each = var.instances

  ami           = each.value
  instance_type = var.instance_type

  # To change the type, AWS stops an instance, and its jobs are lost. The user data contains the type, so another type replaces the instance.
  user_data                   = "#cloud-config\n# ${var.instance_type}\n"
  user_data_replace_on_change = true

  tags = {
    Name = each.key
  }

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

output "grit_runner_managers" {
  value     = module.rollout.grit_runner_managers
  sensitive = true
}
