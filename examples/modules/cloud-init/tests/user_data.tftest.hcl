variables {
  name               = "blue-v1"
  runner_token       = "glrt-secret"
  executor           = "shell"
  concurrent         = 4
  host_key           = { private = "PRIVATE", public = "ssh-ed25519 AAAA host" }
  deploy_public_keys = ["ssh-ed25519 AAAA deploy\n"]
}

run "user_data_has_host_key_and_restricted_deploy_user" {
  command = plan

  assert {
    condition     = startswith(output.user_data, "#cloud-config\n")
    error_message = "cloud-init recognizes the document by its first line."
  }
  assert {
    condition     = yamldecode(output.user_data).ssh_keys == { ed25519_private = "PRIVATE", ed25519_public = "ssh-ed25519 AAAA host" }
    error_message = "The host key must be the one that the provider expects."
  }
  assert {
    condition     = yamldecode(output.user_data).users[1].ssh_authorized_keys == ["restrict,port-forwarding,command=\"/bin/false\",permitopen=\"[/run/grit-wrapper/gitlab-runner.service.sock]:*\" ssh-ed25519 AAAA deploy"]
    error_message = "The deploy user must not run commands."
  }
  assert {
    condition     = yamldecode(output.user_data).write_files[3].path == "/etc/ssh/sshd_config.d/grit-deploy-user.conf" && strcontains(yamldecode(output.user_data).write_files[3].content, "\nMatch User deploy\n")
    error_message = "sshd must restrict the deploy user to the socket of the wrapper."
  }
  assert {
    condition     = yamldecode(output.user_data).users[1].groups == "grit-wrapper"
    error_message = "The first login of the deploy user must have the group of the socket: a session keeps the groups of its login."
  }
}

run "configuration_has_http_server_and_boot_verify" {
  command = plan

  assert {
    condition     = strcontains(yamldecode(output.user_data).write_files[0].content, "listen_address = \"127.0.0.1:9252\"")
    error_message = "The wrapper reads the runner's health over HTTP."
  }
  assert {
    condition     = strcontains(yamldecode(output.user_data).write_files[0].content, "[runners.experimental.boot_verify]\n    enabled = true\n    timeout = \"5m\"")
    error_message = "The runner must verify that it can run jobs."
  }
  assert {
    condition     = !strcontains(yamldecode(output.user_data).write_files[1].content, "dpkg --install")
    error_message = "Without wrapper_package nothing is downloaded for the wrapper."
  }
}

run "ends_of_jobs_are_reported_after_hours_of_outage" {
  command = plan

  assert {
    condition     = strcontains(yamldecode(output.user_data).write_files[0].content, "\n  job_status_final_update_retry_limit = 20\n")
    error_message = "The runner's default of 10 attempts drops the result of a job after 9 minutes."
  }
}

run "report_limit_can_be_set" {
  command = plan

  variables {
    runners_config = "job_status_final_update_retry_limit = 5"
  }

  assert {
    condition     = length(regexall("job_status_final_update_retry_limit = ", yamldecode(output.user_data).write_files[0].content)) == 1
    error_message = "The key must not be in the section twice: TOML does not allow it."
  }
}

run "metrics_are_off_by_default" {
  command = plan

  assert {
    condition     = !strcontains(output.user_data, "http-listen") && !strcontains(output.user_data, "insecure-http")
    error_message = "Without the input, the wrapper serves no metrics."
  }
}

run "metrics_for_the_host_stay_on_loopback" {
  command = plan

  variables {
    metrics = "host"
  }

  assert {
    condition     = endswith(yamldecode(output.user_data).write_files[4].content, "\nExecStart=/usr/bin/grit-wrapper run --unit gitlab-runner.service --http-listen tcp://127.0.0.1:9253\n")
    error_message = "An agent on the instance reads them."
  }
  assert {
    condition     = yamldecode(output.user_data).write_files[4].path == "/etc/systemd/system/grit-wrapper.service.d/deployment.conf"
    error_message = "The wrapper serves the metrics."
  }
}

run "metrics_for_the_network_need_the_flag" {
  command = plan

  variables {
    executor = "docker"
    metrics  = "network"
  }

  assert {
    condition     = endswith(yamldecode(output.user_data).write_files[5].content, " --http-listen tcp://0.0.0.0:9253 --insecure-http-beyond-loopback\n")
    error_message = "Without the flag, the wrapper refuses the address."
  }
}

run "boot_verify_can_be_disabled" {
  command = plan

  variables {
    boot_verify_timeout = null
    wrapper_package     = { url = "https://example.com/grit-wrapper.deb", sha256 = "0000000000000000000000000000000000000000000000000000000000000000" }
  }

  assert {
    condition     = !strcontains(yamldecode(output.user_data).write_files[0].content, "boot_verify")
    error_message = "null disables the boot verification."
  }
  assert {
    condition     = strcontains(yamldecode(output.user_data).write_files[1].content, "sha256sum --check")
    error_message = "The package must be verified."
  }
}

run "containers_of_jobs_cannot_read_the_user_data" {
  command = plan

  variables {
    executor = "docker"
  }

  assert {
    condition     = yamldecode(output.user_data).write_files[4].path == "/var/lib/grit/block-metadata.sh" && yamldecode(output.user_data).write_files[4].permissions == "0700"
    error_message = "The script must be on the host."
  }
  assert {
    condition     = strcontains(yamldecode(output.user_data).write_files[2].content, "\n[Service]\n") && strcontains(yamldecode(output.user_data).write_files[2].content, "\nExecStartPre=/var/lib/grit/block-metadata.sh\n")
    error_message = "The rules must exist before each start of the runner, also after a reboot."
  }
}

run "other_executors_need_no_rules_for_containers" {
  command = plan

  variables {
    executor = "docker-autoscaler"
  }

  assert {
    condition     = !strcontains(output.user_data, "block-metadata")
    error_message = "The manager has no containers, and may have no iptables."
  }
}

run "second_lines_are_refused" {
  command = plan

  variables {
    generation         = "a\n[Service]\nExecStartPre=/bin/false"
    deploy_public_keys = ["ssh-ed25519 AAAA deploy\nssh-ed25519 BBBB other"]
  }

  expect_failures = [var.generation, var.deploy_public_keys]
}

run "options_of_a_key_are_refused" {
  command = plan

  variables {
    deploy_public_keys = ["ssh-ed25519 AAAA deploy", "command=\"/bin/sh\" ssh-ed25519 AAAA"]
  }

  expect_failures = [var.deploy_public_keys]
}

run "package_is_downloaded_where_only_root_can_write" {
  command = plan

  variables {
    wrapper_package = { url = "https://example.com/grit-wrapper.deb", sha256 = "0000000000000000000000000000000000000000000000000000000000000000" }
  }

  assert {
    condition     = !strcontains(output.user_data, "/tmp/") && strcontains(output.user_data, "dpkg --install /var/lib/grit/grit-wrapper.deb")
    error_message = "Another user must not replace the package."
  }
}

run "invalid_inputs_are_refused" {
  command = plan

  variables {
    concurrent         = 0.5
    listen_address     = ""
    deploy_user        = "deploy user"
    metrics            = "all"
    deploy_public_keys = []
    wrapper_package    = { url = "http://example.com/x.deb", sha256 = "0" }
  }

  expect_failures = [
    var.concurrent,
    var.listen_address,
    var.deploy_user,
    var.metrics,
    var.deploy_public_keys,
    var.wrapper_package,
  ]
}
