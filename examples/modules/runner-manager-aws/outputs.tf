output "runner_manager" {
  description = "The runner manager in the format of the module `rollout`, with the name of its worker group."
  value       = merge(local.runner_manager, { worker_group = one(aws_autoscaling_group.workers[*].name) })
}

output "grit_runner_managers" {
  description = "The runner manager in the format of GRIT's contract: a map with one entry. Merge the maps of all managers into the root module's output of this name."
  value       = { (var.name) = local.runner_manager }
}

output "worker_group" {
  description = "Name of the worker group; null without one."
  value       = one(aws_autoscaling_group.workers[*].name)
}

locals {
  runner_manager = {
    instance_id     = aws_instance.this.id
    instance_name   = var.name
    address         = var.associate_public_ip_address ? aws_instance.this.public_ip : aws_instance.this.private_ip
    wrapper_address = module.cloud_init.wrapper_address
    username        = var.deploy_user
    host_key        = trimspace(tls_private_key.host.public_key_openssh)
  }
}
