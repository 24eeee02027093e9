mock_provider "grit" {}

variables {
  runner_managers = {
    blue-v1 = {
      instance_id     = "i-1"
      instance_name   = "blue-v1"
      address         = "10.0.0.7"
      wrapper_address = "unix:///run/grit-wrapper/wrapper.sock"
      worker_group    = "workers-blue-v1"
    }
    green-v1 = {
      instance_id     = "i-2"
      instance_name   = "green-v1"
      address         = "10.0.0.8"
      wrapper_address = "unix:///run/grit-wrapper/wrapper.sock"
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
    condition     = join(",", keys(grit_runner_health.this.guards)) == "blue-v1,green-v1"
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
