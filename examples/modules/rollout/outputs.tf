output "grit_runner_managers" {
  description = "The runner managers in the format of GRIT's contract. Add an output with this name to the root module. It has no null attributes: GRIT's Deployer refuses them."
  value       = { for key, manager in grit_runner_health.this.runner_managers : key => { for name, value in manager : name => value if value != null } }
  sensitive   = true
}

output "status" {
  description = "`healthy`, or `unhealthy` if a refresh found a runner manager that is not healthy."
  value       = grit_runner_health.this.status
}

output "managers" {
  description = "Verified health of each runner manager, by key."
  value       = grit_runner_health.this.managers
}
