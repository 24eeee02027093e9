terraform {
  required_providers {
    grit = {
      source  = "runner-tools/grit"
      version = "~> 0.1.0"
    }
  }
}

variable "deploy_key" {
  description = "Private key of the deploy user. Ephemeral: Terraform stores it neither in the plan nor in the state."
  type        = string
  ephemeral   = true
  sensitive   = true
}

provider "grit" {
  ssh = {
    username         = "deploy"
    private_key      = var.deploy_key
    known_hosts_path = "${path.root}/known_hosts"
  }
}
