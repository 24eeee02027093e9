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

run "output_has_the_form_of_the_contract" {
  command = apply

  assert {
    condition = {
      for key, manager in output.grit_runner_managers : key => [
        manager.instance_id, manager.instance_name, manager.wrapper_address, manager.username, manager.host_key
      ]
      } == {
      blue-v1 = [
        "42", google_compute_instance.this.name, "unix:///run/grit-wrapper/gitlab-runner.service.sock", "deploy", "ssh-ed25519 AAAA"
      ]
    }
    error_message = "The output must have the form of GRIT's contract."
  }
  assert {
    condition     = output.runner_manager.address == google_compute_instance.this.network_interface[0].network_ip
    error_message = "The internal address must be used if there is no external one."
  }
  assert {
    condition     = output.runner_manager.worker_group == google_compute_instance_group_manager.workers[0].name
    error_message = "The module rollout compares the names of the worker groups."
  }
  assert {
    condition     = strcontains(yamldecode(google_compute_instance.this.metadata["user-data"]).write_files[0].content, "name = \"${google_compute_instance_group_manager.workers[0].name}\"\n")
    error_message = "The runner must use the group of this module."
  }
  assert {
    condition     = startswith(google_compute_instance.this.name, "blue-v1-") && length(google_compute_instance.this.name) <= 63
    error_message = "The name must be valid and unique for each generation."
  }
}

run "manager_without_worker_group" {
  command = apply

  variables {
    executor         = "shell"
    worker_group     = null
    external_address = true
  }

  assert {
    condition     = output.worker_group == null && !strcontains(google_compute_instance.this.metadata["user-data"], "runners.autoscaler")
    error_message = "Without worker_group there is no group."
  }
  assert {
    condition     = output.runner_manager.address == google_compute_instance.this.network_interface[0].access_config[0].nat_ip
    error_message = "The external address must be used if there is one."
  }
}

run "instance_can_be_protected_against_termination" {
  command = apply

  variables {
    termination_protection = true
  }

  assert {
    condition     = google_compute_instance.this.deletion_protection
    error_message = "The cloud must refuse to terminate the instance."
  }
}

run "instance_is_not_protected_by_default" {
  command = apply

  assert {
    condition     = !google_compute_instance.this.deletion_protection
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
