locals {
  # Without keys and passphrases, the map has no secrets.
  managers = nonsensitive(sensitive(var.runner_managers))

  # `address` with or without a port; an IPv6 address with a port has brackets.
  hosts = {
    for key, manager in local.managers : key => (
      startswith(manager.address, "[") ? regex("^\\[[^]]*\\]", manager.address) :
      length(split(":", manager.address)) > 2 ? "[${manager.address}]" : split(":", manager.address)[0]
    )
  }

  targets = {
    for key, manager in local.managers : key => jsonencode([{
      targets = [coalesce(manager.metrics_address, "${local.hosts[key]}:${var.metrics_port}")]
      labels = { for name, value in merge(var.labels, manager.labels, {
        instance      = key
        instance_name = manager.instance_name
        instance_id   = manager.instance_id
      }) : name => value if value != null }
    }])
  }

  scrape_config = { for name, value in {
    job_name        = "grit-wrapper"
    scheme          = var.scrape.scheme
    basic_auth      = var.scrape.basic_auth
    authorization   = var.scrape.bearer_token_file == null ? null : { credentials_file = var.scrape.bearer_token_file }
    tls_config      = var.scrape.tls == null ? null : { for name, value in var.scrape.tls : name => value if value != null }
    file_sd_configs = [{ files = ["${var.targets_directory}/*.json"] }]
  } : name => value if value != null }

  rules = file("${path.module}/files/grit-wrapper.rules.yml")

  # The thresholds that the inputs replace.
  stalled = "grit_wrapper_drain_last_progress_timestamp_seconds > 3600"
  long    = "grit_wrapper_drain_start_timestamp_seconds > 86400"

  remote_write = var.remote_write == null ? null : [{ for name, value in {
    url           = var.remote_write.url
    headers       = var.remote_write.tenant == null ? null : { X-Scope-OrgID = var.remote_write.tenant }
    basic_auth    = var.remote_write.basic_auth
    authorization = var.remote_write.bearer_token_file == null ? null : { credentials_file = var.remote_write.bearer_token_file }
  } : name => value if value != null }]
}

# A file for each runner manager. With `depends_on` in the module of the drains, Terraform removes the file of an old manager after its drain, so that
# Prometheus scrapes it until then. The name contains a hash of the content: with create_before_destroy, a replacement must not have the path of the
# file that is removed after it.
resource "local_file" "targets" {
  for_each = var.write_targets ? local.targets : {}

  filename        = "${var.targets_directory}/${replace(each.key, "/[^a-zA-Z0-9_.-]/", "_")}-${substr(sha256("${each.key} ${each.value}"), 0, 8)}.json"
  content         = each.value
  file_permission = "0644"

  lifecycle {
    create_before_destroy = true
  }
}
