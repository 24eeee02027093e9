output "grit_runner_managers" {
  description = "The runner managers in the form of GRIT's contract. Give the root module an output of this name."
  value       = grit_runner_health.this.runner_managers
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
