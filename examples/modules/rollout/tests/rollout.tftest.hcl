mock_provider "grit" {}

variables {
  runner_managers = {
    blue-v1 = {
      instance_id     = "i-1"
      instance_name   = "blue-v1"
      address         = "10.0.0.7"
      wrapper_address = "unix:///run/grit-wrapper/gitlab-runner.service.sock"
      worker_group    = "workers-blue-v1"
    }
    green-v1 = {
      instance_id     = "i-2"
      instance_name   = "green-v1"
      address         = "10.0.0.8"
      wrapper_address = "unix:///run/grit-wrapper/gitlab-runner.service.sock"
      worker_group    = "workers-green-v1"
    }
  }
}

run "each_manager_has_a_drain_of_its_instance" {
  command = apply

  assert {
    condition     = { for key, drain in grit_runner_drain.this : key => drain.instance_id } == { blue-v1 = "i-1", green-v1 = "i-2" }
    error_message = "Each drain must be tied to its instance."
  }
  assert {
    condition     = join(",", keys(grit_runner_health.this.drains)) == "blue-v1,green-v1"
    error_message = "The health check must depend on all drains."
  }
  assert {
    condition     = grit_runner_drain.this["blue-v1"].timeouts.delete == "3h" && grit_runner_health.this.timeouts.update == "15m"
    error_message = "The defaults of the timeouts changed."
  }
  assert {
    condition     = join(",", keys(output.grit_runner_managers["blue-v1"])) == "address,instance_id,instance_name,wrapper_address"
    error_message = "The output must have no null attributes."
  }
}

run "managers_without_worker_group_are_accepted" {
  command = plan

  variables {
    runner_managers = {
      a = { instance_id = "i-1", instance_name = "a", address = "10.0.0.7", wrapper_address = "h:1" }
      b = { instance_id = "i-2", instance_name = "b", address = "10.0.0.8", wrapper_address = "h:1", worker_group = "" }
    }
  }
}

run "shared_worker_group_is_refused" {
  command = plan

  variables {
    runner_managers = {
      blue-v1 = { instance_id = "i-1", instance_name = "a", address = "10.0.0.7", wrapper_address = "h:1", worker_group = "workers" }
      blue-v2 = { instance_id = "i-2", instance_name = "b", address = "10.0.0.8", wrapper_address = "h:1", worker_group = "workers" }
    }
  }

  expect_failures = [grit_runner_health.this]
}

run "empty_map_is_refused" {
  command = plan

  variables {
    runner_managers = {}
  }

  expect_failures = [var.runner_managers]
}

run "all_options_reach_the_resources" {
  command = plan

  variables {
    drain = {
      mode           = "forceful"
      on_timeout     = "force"
      on_unreachable = "assume_terminated"
      on_lost_jobs   = "retry"
      reason         = "rollout of v2"
      retry          = { attempts = 3 }
      timeout        = "6h"
    }
    health = {
      level            = "working"
      min_jobs         = 2
      stable_for       = "30s"
      expected_version = "19.4.0"
      start_if_stopped = true
      start_drains     = false
      retry            = { attempts = 4 }
      triggers         = { token = "2" }
      timeout          = "20m"
    }
  }

  assert {
    condition = alltrue([for drain in grit_runner_drain.this : [
      drain.mode, drain.on_timeout, drain.on_unreachable, drain.on_lost_jobs, drain.reason,
      drain.retry.attempts, drain.timeouts.delete,
    ] == ["forceful", "force", "assume_terminated", "retry", "rollout of v2", 3, "6h"]])
    error_message = "The drains must have all options."
  }
  assert {
    condition = [
      grit_runner_health.this.level, grit_runner_health.this.min_jobs, grit_runner_health.this.stable_for,
      grit_runner_health.this.expected_version, grit_runner_health.this.start_if_stopped, grit_runner_health.this.start_drains,
      grit_runner_health.this.retry.attempts, grit_runner_health.this.triggers.token,
      grit_runner_health.this.timeouts.create, grit_runner_health.this.timeouts.update,
    ] == ["working", 2, "30s", "19.4.0", true, false, 4, "2", "20m", "20m"]
    error_message = "The health check must have all options."
  }
}

run "unknown_options_are_refused" {
  command = plan

  variables {
    drain  = { on_lost_job = "retry" }
    health = { timeouts = { create = "1m" } }
  }

  expect_failures = [var.drain, var.health]
}

run "unknown_options_of_retry_are_refused" {
  command = plan

  variables {
    drain  = { retry = { attempt = 3 } }
    health = { retry = { delay = "1s" } }
  }

  expect_failures = [var.drain, var.health]
}
