mock_provider "google" {
  mock_resource "google_compute_instance" {
    defaults = {
      instance_id = "42"
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
  zone               = "europe-west1-b"
  image              = "ubuntu-2404-lts-amd64"
  machine_type       = "e2-small"
  subnetwork         = "managers"
  runner_token       = "glrt-secret"
  executor           = "docker-autoscaler"
  concurrent         = 10
  deploy_public_keys = ["ssh-ed25519 AAAA deploy"]

  worker_group = {
    instance_template = "workers"
    max_instances     = 10
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
    machine_type = "e2-large"
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

run "another_host_key_has_another_instance" {
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
    condition     = output.runner_manager.host_key == "ssh-ed25519 BBBB" && output.runner_manager.instance_name != run.first.runner_manager.instance_name
    error_message = "Google changes metadata in place: without another name, the host would keep the old host key."
  }
}
