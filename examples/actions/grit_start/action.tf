action "grit_start" "maintenance" {
  config {
    runner_managers = { for key, drain in grit_runner_drain.example : key => drain.runner_manager }
  }
}
