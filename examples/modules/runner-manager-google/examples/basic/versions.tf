terraform {
  required_version = ">= 1.6"

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 5.0"
    }
    grit = {
      source  = "runner-tools/grit"
      version = ">= 0.1.0"
    }
    tls = {
      source  = "hashicorp/tls"
      version = ">= 4.0"
    }
  }
}

# The private key comes from the environment: GRIT_SSH_PRIVATE_KEY. The host keys come from the modules.
provider "grit" {
  ssh = {
    username = "deploy"
  }
}
