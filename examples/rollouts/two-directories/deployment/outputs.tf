output "grit_runner_managers" {
  description = "The runner managers, in the format that the Deployer reads."
  value = {
    for key, instance in aws_instance.manager : key => {
      instance_id     = instance.id
      instance_name   = key
      address         = instance.private_ip
      wrapper_address = "unix:///run/grit-wrapper/gitlab-runner.service.sock"
    }
  }
}
