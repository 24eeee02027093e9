module "blue" {
  source = "gitlab.com/gitlab-org/ci-cd/runner-tools/grit//modules/google/runner"
  # …
}

output "grit_runner_managers" {
  value     = provider::grit::managers_from_grit({ blue = module.blue })
  sensitive = true
}
