# One runner manager, and the worker group that belongs to it. Each change of the user data or of an attribute that Google cannot change while the
# instance runs replaces both: an old and a new manager never share a group, and no instance is stopped for a change.

locals {
  # The host key, the files that form the user data (this one has the configuration of the autoscaler), and all inputs except those that change in
  # place (`network_tags`, `labels`, `termination_protection`).
  generation = nonsensitive(substr(sha256(jsonencode([
    var.revision, tls_private_key.host.public_key_openssh, module.cloud_init.template_hash, filesha256("${path.module}/main.tf"),
    var.gitlab_url, var.runner_token, var.executor, var.concurrent, var.runners_config, var.global_config, var.boot_verify_timeout, var.metrics,
    var.deploy_user, var.deploy_public_keys, var.install_runner, var.wrapper_package, var.worker_group,
    var.zone, var.image, var.machine_type, var.subnetwork, var.external_address, var.disk_size, var.service_account,
  ])), 0, 8))

  autoscaler_config = var.worker_group == null ? "" : <<-EOT
    [runners.autoscaler]
      plugin = "googlecloud"
      capacity_per_instance = ${var.worker_group.capacity_per_instance}
      max_use_count = ${var.worker_group.max_use_count}
      max_instances = ${var.worker_group.max_instances}
      # Only this manager uses the group: without the manager, its instances have no purpose.
      delete_instances_on_shutdown = true
      [runners.autoscaler.plugin_config]
        name = "${google_compute_instance_group_manager.workers[0].name}"
        project = "${google_compute_instance_group_manager.workers[0].project}"
        zone = ${jsonencode(var.zone)}
      [runners.autoscaler.connector_config]
        username = ${jsonencode(var.worker_group.username)}
        use_external_addr = false
      [[runners.autoscaler.policy]]
        idle_count = ${var.worker_group.idle_count}
        idle_time = ${jsonencode(var.worker_group.idle_time)}
        # gitlab-runner lint of 19.3 refuses a policy without it.
        preemptive_mode = false
  EOT
}

# The provider knows the host key before its first connection.
resource "tls_private_key" "host" {
  algorithm = "ED25519"

  lifecycle {
    create_before_destroy = true
  }
}

module "cloud_init" {
  source = "../cloud-init"

  name                = var.name
  generation          = local.generation
  gitlab_url          = var.gitlab_url
  runner_token        = var.runner_token
  executor            = var.executor
  concurrent          = var.concurrent
  runners_config      = "${var.runners_config}\n${local.autoscaler_config}"
  global_config       = var.global_config
  boot_verify_timeout = var.boot_verify_timeout
  metrics             = var.metrics
  install_fleeting    = var.worker_group != null
  deploy_user         = var.deploy_user
  deploy_public_keys  = var.deploy_public_keys
  install_runner      = var.install_runner
  wrapper_package     = var.wrapper_package

  host_key = {
    private = tls_private_key.host.private_key_openssh
    public  = trimspace(tls_private_key.host.public_key_openssh)
  }
}

resource "google_compute_instance" "this" {
  # Names are unique in a zone: during a replacement, the old and the new instance exist.
  name         = "${var.name}-${local.generation}"
  zone         = var.zone
  machine_type = var.machine_type
  tags         = var.network_tags
  labels       = var.labels

  deletion_protection = var.termination_protection

  metadata = {
    user-data              = module.cloud_init.user_data
    block-project-ssh-keys = "true"
  }

  boot_disk {
    initialize_params {
      image = var.image
      size  = var.disk_size
    }
  }

  network_interface {
    subnetwork = var.subnetwork

    dynamic "access_config" {
      for_each = var.external_address ? [1] : []

      content {}
    }
  }

  dynamic "service_account" {
    for_each = var.service_account == null ? [] : [var.service_account]

    content {
      email  = service_account.value.email
      scopes = service_account.value.scopes
    }
  }

  lifecycle {
    create_before_destroy = true
  }
}

resource "google_compute_instance_group_manager" "workers" {
  count = var.worker_group == null ? 0 : 1

  name               = "${var.name}-${local.generation}-workers"
  base_instance_name = "${var.name}-${local.generation}-w"
  zone               = var.zone
  target_size        = 0

  version {
    instance_template = var.worker_group.instance_template
  }

  lifecycle {
    create_before_destroy = true
    # The runner manager changes it.
    ignore_changes = [target_size]
  }
}
