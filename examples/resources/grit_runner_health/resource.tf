resource "grit_runner_health" "example" {
  runner_managers = { for key, drain in grit_runner_drain.example : key => drain.runner_manager }

  # A new drain changes this map, so the health check runs again before old drains are destroyed.
  drains = { for key, drain in grit_runner_drain.example : key => drain.id }

  stable_for = "30s"

  timeouts = {
    create = "15m"
    update = "15m"
  }

  lifecycle {
    create_before_destroy = true
  }
}
