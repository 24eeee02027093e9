# Deployment version 1: a directory with a separate state.

module "deployment" {
  source = "../deployment"

  managers   = var.managers
  successors = try(data.grit_deployment.next[0].runner_managers, {})
}

# Read only if `next_directory` is set, before this version is destroyed.
data "grit_deployment" "next" {
  count = var.next_directory == null ? 0 : 1

  directory = var.next_directory
}

output "grit_runner_managers" {
  description = "The runner managers of this deployment version."
  value       = module.deployment.grit_runner_managers
}
