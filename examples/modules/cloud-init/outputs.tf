output "user_data" {
  description = "The user data: a `#cloud-config` document. It contains the runner token and the private host key."
  value       = "#cloud-config\n${yamlencode(local.cloud_config)}"
  sensitive   = true
}

output "template_hash" {
  description = "Hash of this module's files that form the user data, defaults of the inputs included. It changes with an upgrade of the module, and not with the inputs."
  value       = sha256(join("\n", [for name in ["main.tf", "variables.tf", "templates/block-metadata.sh", "templates/config.toml.tftpl", "templates/deploy-forwarding.conf.tftpl", "templates/first-boot.sh.tftpl"] : filesha256("${path.module}/${name}")]))
}

output "wrapper_address" {
  description = "Address of the wrapper on the instance."
  value       = "unix:///run/grit-wrapper/gitlab-runner.service.sock"
}
