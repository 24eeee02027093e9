output "targets" {
  description = "Content of the target file of each runner manager, for file-based service discovery."
  value       = local.targets
}

output "prometheus_config" {
  description = "Configuration of Prometheus (`prometheus.yml`): the scrape job, the rules, and `remote_write`."
  value = yamlencode({ for name, value in {
    global         = { scrape_interval = var.scrape.interval, evaluation_interval = var.scrape.interval }
    rule_files     = [var.rules_file]
    scrape_configs = [local.scrape_config]
    remote_write   = local.remote_write
  } : name => value if value != null })
}

output "rules" {
  description = "Recording and alert rules, for `rules_file` or the ruler of Mimir."
  value = replace(
    replace(local.rules, local.stalled, "${trimsuffix(local.stalled, "3600")}${var.drain_stalled_after}"),
    local.long, "${trimsuffix(local.long, "86400")}${var.drain_long_after}",
  )

  precondition {
    condition     = alltrue([for threshold in [local.stalled, local.long] : length(split(threshold, local.rules)) == 2])
    error_message = "The rules of the module have other thresholds than its inputs replace. This is a bug of the module."
  }
}

output "dashboard" {
  description = "Dashboard of Grafana (JSON)."
  value       = file("${path.module}/files/dashboard.json")
}
