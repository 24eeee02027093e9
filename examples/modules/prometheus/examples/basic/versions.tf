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
  }
}
