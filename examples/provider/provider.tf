terraform {
  required_providers {
    grit = {
      source = "runner-tools/grit"
    }
  }
}

variable "deploy_key" {
  description = "Private key of the deploy user. Ephemeral: it is stored in no plan and no state."
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
