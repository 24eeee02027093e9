# One runner manager, and the worker group that belongs to it. Each change of the user data or of an attribute that AWS cannot change while the
# instance runs replaces both: an old and a new manager never share a group, and no instance is stopped for a change.

locals {
  # The host key, the files that form the user data (this one has the configuration of the autoscaler), and all inputs except those that change in
  # place (`security_group_ids`, `tags`, `termination_protection`).
  generation = nonsensitive(substr(sha256(jsonencode([
    var.revision, tls_private_key.host.public_key_openssh, module.cloud_init.template_hash, filesha256("${path.module}/main.tf"),
    var.gitlab_url, var.runner_token, var.executor, var.concurrent, var.runners_config, var.global_config, var.boot_verify_timeout, var.metrics,
    var.deploy_user, var.deploy_public_keys, var.install_runner, var.wrapper_package, var.worker_group,
    var.ami, var.instance_type, var.subnet_id, var.iam_instance_profile, var.associate_public_ip_address, var.volume_size,
  ])), 0, 8))

  autoscaler_config = var.worker_group == null ? "" : <<-EOT
    [runners.autoscaler]
      plugin = "aws"
      capacity_per_instance = ${var.worker_group.capacity_per_instance}
      max_use_count = ${var.worker_group.max_use_count}
      max_instances = ${var.worker_group.max_instances}
      # Only this manager uses the group: without the manager, its instances have no purpose.
      delete_instances_on_shutdown = true
      [runners.autoscaler.plugin_config]
        name = "${aws_autoscaling_group.workers[0].name}"
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

resource "aws_instance" "this" {
  ami                         = var.ami
  instance_type               = var.instance_type
  subnet_id                   = var.subnet_id
  vpc_security_group_ids      = var.security_group_ids
  iam_instance_profile        = var.iam_instance_profile
  associate_public_ip_address = var.associate_public_ip_address
  user_data                   = module.cloud_init.user_data
  user_data_replace_on_change = true
  disable_api_termination     = var.termination_protection

  tags = merge(var.tags, {
    Name = var.name
  })

  metadata_options {
    http_tokens = "required"
    # Containers of jobs are one hop farther away: they cannot read the user data, which has the runner token and the private host key.
    http_put_response_hop_limit = 1
  }

  root_block_device {
    volume_size = var.volume_size
    encrypted   = true
  }

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_autoscaling_group" "workers" {
  count = var.worker_group == null ? 0 : 1

  name                = "${var.name}-${local.generation}-workers"
  vpc_zone_identifier = var.worker_group.subnet_ids
  min_size            = 0
  max_size            = var.worker_group.max_instances
  # The runner manager, not AWS, selects the instances to terminate.
  protect_from_scale_in = true
  suspended_processes   = ["AZRebalance"]
  # The manager has been drained before its group is destroyed.
  force_delete = true

  launch_template {
    id      = var.worker_group.launch_template_id
    version = var.worker_group.launch_template_version
  }

  dynamic "tag" {
    for_each = merge(var.tags, { Name = "${var.name}-${local.generation}-w" })

    content {
      key                 = tag.key
      value               = tag.value
      propagate_at_launch = true
    }
  }

  lifecycle {
    create_before_destroy = true
    # The runner manager changes it.
    ignore_changes = [desired_capacity]
  }
}
