output "user_data" {
  description = "The user data: a `#cloud-config` document. It contains the runner token and the private host key."
  value       = "#cloud-config\n${yamlencode(local.cloud_config)}"
  sensitive   = true
}

output "wrapper_address" {
  description = "Address of the wrapper on the instance."
  value       = "unix:///run/grit-wrapper/wrapper.sock"
}
