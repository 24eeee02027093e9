terraform {
  required_version = ">= 1.6"

  required_providers {
    grit = {
      source  = "runner-tools/grit"
      version = ">= 0.1.0"
    }
  }
}
