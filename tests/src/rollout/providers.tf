# The providers and what they need, for every configuration in the lab.

terraform {
  required_providers {
    grit = {
      source = "runner-tools/grit"
    }
    lab = {
      source = "runner-tools/lab"
    }
  }
}

variable "cloud" {
  type = string
}

variable "ssh" {
  description = "The `ssh` object of the provider block."
  type        = any
}

provider "lab" {
  cloud = var.cloud
}

provider "grit" {
  ssh = var.ssh
}
