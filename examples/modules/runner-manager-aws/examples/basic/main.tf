# Two runner managers, and their rollout. A new version is a new entry in `managers`: add `blue-v2` and `green-v2`, remove `blue-v1` and `green-v1`,
# and apply once.
module "manager" {
  source   = "../.."
  for_each = var.managers

  name               = each.key
  ami                = each.value.ami
  instance_type      = "t3.small"
  subnet_id          = var.subnet_id
  security_group_ids = var.security_group_ids
  runner_token       = var.runner_token
  executor           = "docker-autoscaler"
  concurrent         = 10
  deploy_public_keys = [var.deploy_public_key]

  runners_config = <<-EOT
    [runners.docker]
      image = "alpine:3"
  EOT

  wrapper_package = {
    url    = "https://example.com/grit-wrapper_0.1.0_amd64.deb"
    sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
  }

  worker_group = {
    launch_template_id = each.value.launch_template_id
    subnet_ids         = [var.subnet_id]
    max_instances      = 10
  }
}

module "rollout" {
  source = "../../../rollout"

  runner_managers = { for key, manager in module.manager : key => manager.runner_manager }
}

output "grit_runner_managers" {
  value     = module.rollout.grit_runner_managers
  sensitive = true
}
