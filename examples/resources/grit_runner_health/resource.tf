resource "grit_runner_health" "example" {
  runner_managers = { for key, drain in grit_runner_drain.example : key => drain.runner_manager }

  # With the guards' identifiers this gate changes whenever an instance is new, and old guards wait for it.
  guards = { for key, drain in grit_runner_drain.example : key => drain.id }

  stable_for = "30s"

  timeouts = {
    create = "15m"
    update = "15m"
  }

  lifecycle {
    create_before_destroy = true
  }
}
