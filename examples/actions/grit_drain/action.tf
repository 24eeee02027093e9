action "grit_drain" "maintenance" {
  config {
    # From the drain resources, so that the action uses the same addresses as a rollout.
    runner_managers = { for key, drain in grit_runner_drain.example : key => drain.runner_manager }
    reason          = "kernel update"

    timeouts = {
      invoke = "6h"
    }
  }
}
