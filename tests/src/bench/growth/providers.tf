terraform {
  required_providers {
    grit = { source = "runner-tools/grit" }
  }
}

variable "ssh" {
  type = object({
    username         = string
    private_key_path = string
    host_keys        = list(string)
  })
}

provider "grit" {
  ssh = var.ssh
}
