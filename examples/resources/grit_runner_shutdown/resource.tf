# In the directory of the new deployment version: the runners of the old version drain after the new ones are healthy.
data "grit_deployment" "old" {
  directory = "${path.root}/../v1"
}

resource "grit_runner_shutdown" "example" {
  runner_managers = data.grit_deployment.old.runner_managers

  timeouts = {
    create = "6h"
    update = "6h"
  }

  depends_on = [grit_runner_health.example]
}
