terraform {
  required_version = ">= 1.5"

  required_providers {
    aws = {
      source = "hashicorp/aws"
    }
    grit = {
      source = "runner-tools/grit"
    }
  }
}
