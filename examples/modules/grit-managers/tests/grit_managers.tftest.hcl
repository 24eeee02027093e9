run "outputs_of_both_modules_become_managers" {
  command = plan

  variables {
    modules = {
      blue = {
        ec2_instance_name              = "grit-blue"
        ec2_instance_id                = "i-1"
        ec2_public_ip                  = ""
        ec2_private_ip                 = "10.0.0.7"
        ec2_runner_wrapper_socket_path = "unix:///run/w.sock"
        ec2_ssh_key_openssh_pem        = "key"
      }
      green = {
        enabled           = true
        instance_name     = "grit-green"
        instance_id       = "2"
        external_ip       = null
        internal_ip       = "10.0.0.8"
        internal_hostname = "green.internal"
        wrapper_address   = "/run/w.sock"
      }
    }
  }

  assert {
    condition = jsonencode(output.runner_managers.blue) == jsonencode({
      address = "10.0.0.7", instance_id = "i-1", instance_name = "grit-blue", wrapper_address = "unix:///run/w.sock"
    })
    error_message = "The manager of aws/runner differs: ${jsonencode(output.runner_managers.blue)}"
  }
  assert {
    condition = jsonencode(output.runner_managers.green) == jsonencode({
      address = "10.0.0.8", instance_id = "2", instance_name = "grit-green", wrapper_address = "unix:///run/w.sock"
    })
    error_message = "The manager of google/runner differs: ${jsonencode(output.runner_managers.green)}"
  }
}

run "public_address_is_preferred_and_a_missing_name_is_the_key" {
  command = plan

  variables {
    modules = {
      blue = {
        ec2_instance_name              = ""
        ec2_instance_id                = "i-1"
        ec2_public_ip                  = "192.0.2.7"
        ec2_private_ip                 = "10.0.0.7"
        ec2_runner_wrapper_socket_path = "tcp://localhost:7777"
      }
    }
  }

  assert {
    condition     = output.runner_managers.blue.address == "192.0.2.7" && output.runner_managers.blue.instance_name == "blue"
    error_message = "The address must be public, and the name the key."
  }
}

run "module_without_wrapper_is_refused" {
  command = plan

  variables {
    modules = {
      green = { instance_name = "grit-green", instance_id = "2", external_ip = null, internal_ip = "10.0.0.8", wrapper_address = "" }
    }
  }

  expect_failures = [output.runner_managers]
}

run "other_module_is_refused" {
  command = plan

  variables {
    modules = { other = { url = "https://gitlab.example.com" } }
  }

  expect_failures = [output.runner_managers]
}
