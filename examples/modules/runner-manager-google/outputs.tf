output "runner_manager" {
  description = "The runner manager in the format of the module `rollout`, with the name of its worker group."
  value       = merge(local.runner_manager, { worker_group = one(google_compute_instance_group_manager.workers[*].name) })
}

output "grit_runner_managers" {
  description = "The runner manager in the format of GRIT's contract: a map with one entry. Merge the maps of all managers into the root module's output of this name."
  value       = { (var.name) = local.runner_manager }
}

output "worker_group" {
  description = "Name of the worker group; null without one."
  value       = one(google_compute_instance_group_manager.workers[*].name)
}

locals {
  runner_manager = {
    instance_id     = google_compute_instance.this.instance_id
    instance_name   = google_compute_instance.this.name
    address         = var.external_address ? google_compute_instance.this.network_interface[0].access_config[0].nat_ip : google_compute_instance.this.network_interface[0].network_ip
    wrapper_address = module.cloud_init.wrapper_address
    username        = var.deploy_user
    host_key        = trimspace(tls_private_key.host.public_key_openssh)
  }
}
