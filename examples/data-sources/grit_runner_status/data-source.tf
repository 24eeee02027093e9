data "grit_deployment" "old" {
  directory = "${path.root}/../v1"
}

data "grit_runner_status" "old" {
  runner_managers = data.grit_deployment.old.runner_managers
}

output "jobs_left" {
  value = { for key, manager in data.grit_runner_status.old.managers : key => manager.jobs }
}

output "unreachable" {
  value = { for key, manager in data.grit_runner_status.old.managers : key => manager.error if !manager.reachable }
}
