terraform {
  required_version = ">= 1.6"

  required_providers {
    grit = {
      source  = "runner-tools/grit"
      version = ">= 0.1.0"
    }
    kubernetes = {
      source  = "hashicorp/kubernetes"
      version = ">= 2.30"
    }
  }
}

provider "kubernetes" {
  config_path    = var.kube_config_path
  config_context = var.kube_context
}

provider "grit" {
  ssh = {
    ssh_command = [
      "kubectl", "exec", "--stdin", "--kubeconfig=${var.kube_config_path}", "--context=${var.kube_context}", "--namespace=${var.namespace}",
      "{{instance_name}}", "--container=runner", "--", "grit-wrapper", "dial-stdio", "--address", "{{wrapper_address}}"
    ]
  }
}
