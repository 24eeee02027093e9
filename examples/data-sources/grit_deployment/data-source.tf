# The deployment version in the directory next to this one.
data "grit_deployment" "old" {
  directory = "${path.root}/../v1"
}

output "old_runner_managers" {
  value = { for key, manager in data.grit_deployment.old.runner_managers : key => manager.address }
}
