# The values come from the drain resources, so the health check depends on them.

output "grit_runner_managers" {
  description = "The runner managers of this version."
  value       = { for key, drain in grit_runner_drain.manager : "${key}-${var.name}" => drain.runner_manager }
}

output "drains" {
  description = "IDs of the drain resources, with the same keys."
  value       = { for key, drain in grit_runner_drain.manager : "${key}-${var.name}" => drain.id }
}
