# Deployment version 1: a directory with a separate state.

module "deployment" {
  source = "../deployment"

  managers = var.managers
}

output "grit_runner_managers" {
  description = "The runner managers of this deployment version."
  value       = module.deployment.grit_runner_managers
}
