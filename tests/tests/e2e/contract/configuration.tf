terraform {
  required_providers {
    grit = {
      source = "runner-tools/grit"
    }
  }
}

provider "grit" {
  ssh = {
    username                 = "deploy"
    insecure_ignore_host_key = true
  }
}

resource "grit_runner_drain" "m1" {
  instance_id = "i-0123456789abcdef0"

  runner_manager = {
    instance_name   = "m1"
    address         = "127.0.0.1:1"
    wrapper_address = "unix:///run/grit-wrapper/wrapper.sock"
    username        = "deploy"
  }

  on_timeout = "fail"

  timeouts = {
    delete = "6h"
  }

  lifecycle {
    create_before_destroy = true
  }
}

resource "grit_runner_health" "all" {
  runner_managers = { m1 = grit_runner_drain.m1.runner_manager }
  drains          = { m1 = grit_runner_drain.m1.id }
  level           = "polling"
  stable_for      = "30s"

  lifecycle {
    create_before_destroy = true
  }
}
