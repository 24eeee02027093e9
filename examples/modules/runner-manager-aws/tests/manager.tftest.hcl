mock_provider "aws" {
  mock_resource "aws_instance" {
    defaults = {
      id         = "i-0123"
      private_ip = "10.0.0.7"
      public_ip  = "192.0.2.7"
    }
  }
}

mock_provider "tls" {
  mock_resource "tls_private_key" {
    defaults = {
      private_key_openssh = "PRIVATE\n"
      public_key_openssh  = "ssh-ed25519 AAAA\n"
    }
  }
}

variables {
  name               = "blue-v1"
  ami                = "ami-1"
  instance_type      = "t3.small"
  subnet_id          = "subnet-1"
  security_group_ids = ["sg-1"]
  runner_token       = "glrt-secret"
  executor           = "docker-autoscaler"
  concurrent         = 10
  deploy_public_keys = ["ssh-ed25519 AAAA deploy"]

  worker_group = {
    launch_template_id = "lt-1"
    subnet_ids         = ["subnet-2"]
    max_instances      = 10
  }
}

run "output_has_the_form_of_the_contract" {
  command = apply

  assert {
    condition = output.grit_runner_managers == {
      blue-v1 = {
        instance_id     = "i-0123"
        instance_name   = "blue-v1"
        address         = "10.0.0.7"
        wrapper_address = "unix:///run/grit-wrapper/gitlab-runner.service.sock"
        username        = "deploy"
        host_key        = "ssh-ed25519 AAAA"
      }
    }
    error_message = "The output must have the form of GRIT's contract."
  }
  assert {
    condition     = output.runner_manager.worker_group == aws_autoscaling_group.workers[0].name
    error_message = "The module rollout compares the names of the worker groups."
  }
  assert {
    condition     = strcontains(yamldecode(aws_instance.this.user_data).write_files[0].content, "name = \"${aws_autoscaling_group.workers[0].name}\"\n")
    error_message = "The runner must use the group of this module."
  }
  assert {
    condition     = aws_autoscaling_group.workers[0].protect_from_scale_in && aws_instance.this.user_data_replace_on_change
    error_message = "AWS must not end workers, and other user data needs another instance."
  }
}

run "manager_without_worker_group" {
  command = apply

  variables {
    executor                    = "shell"
    worker_group                = null
    associate_public_ip_address = true
  }

  assert {
    condition     = output.worker_group == null && !strcontains(aws_instance.this.user_data, "runners.autoscaler")
    error_message = "Without worker_group there is no group."
  }
  assert {
    condition     = output.runner_manager.address == "192.0.2.7"
    error_message = "The public address must be used if there is one."
  }
}

run "containers_of_jobs_cannot_reach_the_metadata_service" {
  command = apply

  assert {
    condition     = aws_instance.this.metadata_options[0].http_put_response_hop_limit == 1 && aws_instance.this.metadata_options[0].http_tokens == "required"
    error_message = "The user data has the runner token and the private host key."
  }
}

run "instance_can_be_protected_against_termination" {
  command = apply

  variables {
    termination_protection = true
  }

  assert {
    condition     = aws_instance.this.disable_api_termination
    error_message = "The cloud must refuse to terminate the instance."
  }
}

run "instance_is_not_protected_by_default" {
  command = apply

  assert {
    condition     = !aws_instance.this.disable_api_termination
    error_message = "Each rollout terminates instances."
  }
}

run "invalid_name_is_refused" {
  command = plan

  variables {
    name = "Blue v1"
  }

  expect_failures = [var.name]
}
