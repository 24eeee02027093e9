mock_provider "local" {}

variables {
  runner_managers = {
    blue-v1  = { instance_name = "runner-manager-1", address = "10.0.0.7:22", instance_id = "i-1", labels = { deployment_version = "v1" } }
    green-v1 = { instance_name = "runner-manager-2", address = "manager.example.com" }
    six-v1   = { instance_name = "runner-manager-3", address = "2001:db8::7" }
    port-v1  = { instance_name = "runner-manager-4", address = "[2001:db8::8]:2222" }
    own-v1   = { instance_name = "runner-manager-5", address = "10.0.0.9", metrics_address = "10.1.0.9:443" }
  }
  labels = { environment = "production" }
}

run "each_manager_has_a_target_file" {
  command = apply

  assert {
    condition = { for key, text in output.targets : key => jsondecode(text)[0].targets } == {
      blue-v1  = ["10.0.0.7:9253"]
      green-v1 = ["manager.example.com:9253"]
      six-v1   = ["[2001:db8::7]:9253"]
      port-v1  = ["[2001:db8::8]:9253"]
      own-v1   = ["10.1.0.9:443"]
    }
    error_message = "The target is the host of the address, with the port of the metrics."
  }
  assert {
    condition = jsondecode(local_file.targets["blue-v1"].content)[0].labels == {
      deployment_version = "v1", environment = "production", instance = "blue-v1", instance_id = "i-1", instance_name = "runner-manager-1"
    }
    error_message = "The label instance is the key of the map, as in the provider's messages."
  }
  assert {
    condition     = can(regex("^/etc/prometheus/file_sd/blue-v1-[0-9a-f]{8}\\.json$", local_file.targets["blue-v1"].filename))
    error_message = "The file is in targets_directory, and another content has another name."
  }
  assert {
    condition     = yamldecode(output.prometheus_config).scrape_configs[0] == { job_name = "grit-wrapper", scheme = "http", file_sd_configs = [{ files = ["/etc/prometheus/file_sd/*.json"] }] }
    error_message = "The rules expect the job name grit-wrapper."
  }
}

run "files_can_be_left_to_another_tool" {
  command = plan

  variables {
    write_targets = false
  }

  assert {
    condition     = length(local_file.targets) == 0 && length(output.targets) == 5
    error_message = "Without files, the targets are only outputs."
  }
}

run "authentication_and_tenant_are_configured" {
  command = plan

  variables {
    scrape = {
      scheme     = "https"
      basic_auth = { username = "prometheus", password_file = "/etc/prometheus/secrets/wrapper" }
      tls        = { ca_file = "/etc/prometheus/ca.pem" }
    }
    remote_write = {
      url               = "https://mimir.example.com/api/v1/push"
      tenant            = "runners"
      bearer_token_file = "/etc/prometheus/secrets/mimir"
    }
  }

  assert {
    condition     = yamldecode(output.prometheus_config).scrape_configs[0].basic_auth.username == "prometheus" && yamldecode(output.prometheus_config).scrape_configs[0].tls_config == { ca_file = "/etc/prometheus/ca.pem" }
    error_message = "The scrapes must authenticate."
  }
  assert {
    condition     = yamldecode(output.prometheus_config).remote_write[0] == { url = "https://mimir.example.com/api/v1/push", headers = { X-Scope-OrgID = "runners" }, authorization = { credentials_file = "/etc/prometheus/secrets/mimir" } }
    error_message = "Mimir identifies the tenant by the header X-Scope-OrgID."
  }
}

run "two_kinds_of_authentication_are_refused" {
  command = plan

  variables {
    scrape = { basic_auth = { username = "a", password_file = "b" }, bearer_token_file = "c" }
  }

  expect_failures = [var.scrape]
}

run "rules_have_the_thresholds_of_the_package_by_default" {
  command = plan

  assert {
    condition     = output.rules == file("files/grit-wrapper.rules.yml")
    error_message = "Without inputs, the rules are those of the package."
  }
}

run "thresholds_of_long_drains_can_be_increased" {
  command = plan

  variables {
    drain_stalled_after = 14400
    drain_long_after    = 259200
  }

  assert {
    condition = {
      for rule in yamldecode(output.rules).groups[0].rules : rule.alert => reverse(regexall("> [0-9]+", rule.expr))[0]
      if contains(["GritWrapperDrainStalled", "GritWrapperDrainLong"], try(rule.alert, ""))
    } == { GritWrapperDrainStalled = "> 14400", GritWrapperDrainLong = "> 259200" }
    error_message = "The alerts must have the thresholds of the inputs."
  }
}

run "thresholds_that_contradict_the_alerts_are_refused" {
  command = plan

  variables {
    drain_stalled_after = 600
    drain_long_after    = 90000.5
  }

  expect_failures = [var.drain_stalled_after, var.drain_long_after]
}

run "labels_of_the_metrics_are_refused" {
  command = plan

  variables {
    labels = { state = "production" }
    runner_managers = {
      blue-v1 = { instance_name = "runner-manager-1", address = "10.0.0.7", labels = { instance = "other" } }
    }
  }

  expect_failures = [var.labels, var.runner_managers]
}

run "invalid_names_of_labels_are_refused" {
  command = plan

  variables {
    labels = { "deployment-version" = "v1" }
    runner_managers = {
      blue-v1 = { instance_name = "runner-manager-1", address = "10.0.0.7", labels = { "1st" = "yes" } }
    }
  }

  expect_failures = [var.labels, var.runner_managers]
}
