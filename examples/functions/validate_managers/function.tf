variable "runner_managers" {
  description = "The runner managers of this deployment version."
  type        = any
}

output "grit_runner_managers" {
  value     = provider::grit::validate_managers(var.runner_managers)
  sensitive = true
}
