# The canary must finish three real jobs before the other runner managers are created.
resource "grit_runner_health" "canary" {
  runner_managers = { canary = grit_runner_drain.canary.runner_manager }
  drains          = { canary = grit_runner_drain.canary.id }

  level    = "working"
  min_jobs = 3

  timeouts = {
    create = "1h"
    update = "1h"
  }

  lifecycle {
    create_before_destroy = true
  }
}
