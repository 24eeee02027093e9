# Two runner managers, and their rollout. A new version is a new entry in `managers`: add `blue-v2` and `green-v2`, remove `blue-v1` and `green-v1`,
# and apply once.
module "manager" {
  source   = "../.."
  for_each = var.managers

  name               = each.key
  zone               = "europe-west1-b"
  image              = each.value.image
  machine_type       = "e2-small"
  subnetwork         = var.subnetwork
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
    instance_template = each.value.instance_template
    max_instances     = 10
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
