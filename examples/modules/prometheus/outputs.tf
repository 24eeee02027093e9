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
  value       = file("${path.module}/files/grit-wrapper.rules.yml")
}

output "dashboard" {
  description = "Dashboard of Grafana (JSON)."
  value       = file("${path.module}/files/dashboard.json")
}
