locals {
  # GRIT's modules have an empty string in place of null. `coalesce` skips both.
  runner_managers = {
    for key, runner in var.modules : key => {
      instance_name   = try(coalesce(runner.ec2_instance_name), coalesce(runner.instance_name), key)
      instance_id     = try(coalesce(runner.ec2_instance_id), coalesce(runner.instance_id), null)
      address         = try(coalesce(runner.ec2_public_ip, runner.ec2_private_ip), coalesce(runner.external_ip, runner.internal_ip), null)
      wrapper_address = try(coalesce(runner.ec2_runner_wrapper_socket_path), coalesce(runner.wrapper_address), null)
    }
  }
}
