terraform {
  required_version = ">= 1.6"

  required_providers {
    aws = {
      source = "hashicorp/aws"
    }
    grit = {
      source = "runner-tools/grit"
    }
  }
}
