# The runner managers, each with the date of its last replacement. Another date replaces the manager and its worker group, after a drain.
module "manager" {
  source   = "github.com/runner-tools/terraform-provider-grit//examples/modules/runner-manager-aws?ref=v0.1.0"
  for_each = var.revisions

  name               = each.key
  revision           = each.value
  ami                = var.ami
  instance_type      = "t3.small"
  subnet_id          = var.subnet_id
  security_group_ids = var.security_group_ids
  runner_token       = var.runner_token
  executor           = "docker"
  concurrent         = 10
  deploy_public_keys = [var.deploy_public_key]
}

module "rollout" {
  source = "github.com/runner-tools/terraform-provider-grit//examples/modules/rollout?ref=v0.1.0"

  runner_managers = { for key, manager in module.manager : key => manager.runner_manager }
}
