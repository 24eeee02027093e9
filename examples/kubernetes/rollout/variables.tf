variable "versions" {
  description = "Deployment versions, each a map of runner managers by name. `config`: config.toml with `listen_address`, and `@token@` for the token."
  type = map(map(object({
    image  = string
    config = string
  })))
  nullable = false
}

variable "active_versions" {
  description = "The versions to run: usually one, two during a rollout in two applies."
  type        = set(string)
  nullable    = false

  validation {
    condition     = length(var.active_versions) > 0
    error_message = "Set at least one version. To remove everything, run terraform destroy."
  }
}

variable "runner_token" {
  description = "Authentication token of the runner (glrt-…). Several managers can have one token."
  type        = string
  sensitive   = true
  nullable    = false
}

variable "namespace" {
  description = "Namespace of the managers."
  type        = string
  default     = "runners"
  nullable    = false
}

variable "service_account_name" {
  description = "Service account of the managers, with the rights of the Kubernetes executor (../access.yaml)."
  type        = string
  default     = "gitlab-runner"
  nullable    = false
}

variable "grace_period_seconds" {
  description = "Time for the drain of a pod that is deleted or evicted outside a rollout: longer than the longest job."
  type        = number
  default     = 15000
  nullable    = false
}

variable "health_timeout" {
  description = "How long a rollout waits for the new managers, including new nodes and the download of the image."
  type        = string
  default     = "15m"
  nullable    = false
}

variable "kube_config_path" {
  description = "Absolute path of the kubeconfig file, for the provider `kubernetes` and for kubectl."
  type        = string
  nullable    = false
}

variable "kube_context" {
  description = "Context of this file: its cluster and its user."
  type        = string
  nullable    = false
}
