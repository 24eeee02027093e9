terraform {
  required_version = ">= 1.6"

  required_providers {
    grit = {
      source = "runner-tools/grit"
    }
    lab = {
      source = "runner-tools/lab"
    }
  }
}

provider "grit" {
  ssh = {
    private_key_path = var.private_key_path
  }
}

# Stands in for the provider of a real cloud; LAB_CLOUD names its endpoint.
provider "lab" {}
