terraform {
  required_version = ">= 1.6"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
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

# The private key comes from the environment: GRIT_SSH_PRIVATE_KEY_PATH. The host keys come from the modules.
provider "grit" {
  ssh = {
    username = "deploy"
  }
}
