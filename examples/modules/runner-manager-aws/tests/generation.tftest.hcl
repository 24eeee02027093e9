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

run "first" {
  command = apply

  assert {
    condition     = endswith(output.worker_group, "-workers") && length(output.worker_group) <= 63
    error_message = "The name of the group must be valid on every cloud."
  }
}

run "change_of_an_input_has_another_worker_group" {
  command = apply

  variables {
    instance_type = "t3.large"
  }

  assert {
    condition     = output.worker_group != run.first.worker_group
    error_message = "An old and a new manager must not share a worker group."
  }
}

run "another_revision_has_another_worker_group" {
  command = apply

  variables {
    revision = "2"
  }

  assert {
    condition     = output.worker_group != run.first.worker_group
    error_message = "An old and a new manager must not share a worker group."
  }
}

run "another_host_key_has_another_worker_group" {
  command = apply

  plan_options {
    replace = [tls_private_key.host]
  }

  override_resource {
    target = tls_private_key.host
    values = {
      private_key_openssh = "OTHER\n"
      public_key_openssh  = "ssh-ed25519 BBBB\n"
    }
  }

  assert {
    condition     = output.runner_manager.host_key == "ssh-ed25519 BBBB" && output.worker_group != run.first.worker_group
    error_message = "Another host key replaces the instance, so it must replace the worker group, too."
  }
}
