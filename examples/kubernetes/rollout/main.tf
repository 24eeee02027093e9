# One root module, with `for_each` by deployment version. Changing `active_versions` from ["v1"] to ["v2"] is one apply:
# create the new StatefulSets and drains, wait for the health check, drain the old runners, delete the old StatefulSets.

locals {
  # One entry for each manager of each active version. A new version has new keys, and so new StatefulSets. The name also contains a digest
  # of image and configuration: if they change within a version, another StatefulSet replaces this one, and does not change its pod.
  managers = merge([
    for version in var.active_versions : {
      for name, manager in var.versions[version] : "${name}-${version}" => merge(manager, {
        name = "${name}-${version}-${substr(sha256(jsonencode(manager)), 0, 8)}"
      })
    }
  ]...)
}

resource "kubernetes_secret_v1" "config" {
  for_each = local.managers

  metadata {
    name      = each.value.name
    namespace = var.namespace
  }

  data = {
    "config.toml" = replace(each.value.config, "@token@", var.runner_token)
  }

  lifecycle {
    create_before_destroy = true
  }
}

resource "kubernetes_stateful_set_v1" "manager" {
  for_each = local.managers

  # The health check waits, and proves more than a pod that is ready.
  wait_for_rollout = false

  metadata {
    name      = each.value.name
    namespace = var.namespace
  }

  spec {
    # One pod, so that one drain resource drains the whole StatefulSet.
    replicas              = 1
    service_name          = each.value.name
    pod_management_policy = "Parallel"

    # No change of this resource stops the pod.
    update_strategy {
      type = "OnDelete"
    }

    selector {
      match_labels = { "app.kubernetes.io/instance" = each.value.name }
    }

    template {
      metadata {
        labels = {
          "app.kubernetes.io/name"     = "gitlab-runner-manager"
          "app.kubernetes.io/instance" = each.value.name
        }
        annotations = { "cluster-autoscaler.kubernetes.io/safe-to-evict" = "false" }
      }

      spec {
        service_account_name = var.service_account_name
        # Limits the drain of a pod that something else deletes. When Terraform deletes it, the runner has exited.
        termination_grace_period_seconds = var.grace_period_seconds

        security_context {
          run_as_non_root = true
          run_as_user     = 100
          fs_group        = 65533
          seccomp_profile {
            type = "RuntimeDefault"
          }
        }

        container {
          name  = "runner"
          image = each.value.image
          # Without `--user` of the image's command: it needs root.
          args = ["run", "--working-directory=/home/gitlab-runner"]

          env {
            name  = "CONFIG_FILE"
            value = "/etc/gitlab-runner/config.toml"
          }
          env {
            name  = "GRIT_WRAPPER_HTTP_LISTEN"
            value = "tcp://0.0.0.0:9253"
          }
          env {
            name  = "GRIT_WRAPPER_INSECURE_HTTP_BEYOND_LOOPBACK"
            value = "true"
          }
          env {
            name  = "GRIT_WRAPPER_DRAIN_TIMEOUT"
            value = "${var.grace_period_seconds - 600}s"
          }

          port {
            name           = "wrapper"
            container_port = 9253
          }

          # The wrapper, never the runner: the pod of a drained runner must stay until its StatefulSet is deleted.
          liveness_probe {
            http_get {
              path = "/health/live"
              port = 9253
            }
            initial_delay_seconds = 10
            period_seconds        = 20
            timeout_seconds       = 5
            failure_threshold     = 6
          }
          readiness_probe {
            http_get {
              path = "/health/ready?level=polling"
              port = 9253
            }
            period_seconds  = 10
            timeout_seconds = 5
          }

          resources {
            requests = {
              cpu    = "100m"
              memory = "128Mi"
            }
          }

          security_context {
            allow_privilege_escalation = false
            read_only_root_filesystem  = true
            capabilities {
              drop = ["ALL"]
            }
          }

          volume_mount {
            name       = "grit-wrapper"
            mount_path = "/run/grit-wrapper"
          }
          volume_mount {
            name       = "runner-directory"
            mount_path = "/etc/gitlab-runner"
          }
          volume_mount {
            name       = "config"
            mount_path = "/etc/gitlab-runner/config.toml"
            sub_path   = "config.toml"
            read_only  = true
          }
          volume_mount {
            name       = "home"
            mount_path = "/home/gitlab-runner"
          }
          volume_mount {
            name       = "tmp"
            mount_path = "/tmp"
          }
        }

        volume {
          name = "grit-wrapper"
          empty_dir {}
        }
        volume {
          name = "runner-directory"
          empty_dir {}
        }
        volume {
          name = "config"
          secret {
            secret_name = kubernetes_secret_v1.config[each.key].metadata[0].name
          }
        }
        volume {
          name = "home"
          empty_dir {}
        }
        volume {
          name = "tmp"
          empty_dir {}
        }
      }
    }
  }

  lifecycle {
    create_before_destroy = true
  }
}

# `kubectl drain` and node upgrades do not evict a manager. One budget for all versions.
resource "kubernetes_pod_disruption_budget_v1" "managers" {
  metadata {
    name      = "gitlab-runner-managers"
    namespace = var.namespace
  }

  spec {
    max_unavailable = "0"
    selector {
      match_labels = { "app.kubernetes.io/name" = "gitlab-runner-manager" }
    }
  }
}

# Drains exist before the health check runs, so a new version that never becomes healthy is also drained when it is removed.
resource "grit_runner_drain" "manager" {
  for_each = local.managers

  instance_id = kubernetes_stateful_set_v1.manager[each.key].metadata[0].uid

  # The pod. There is no `address`: the ssh_command of the provider block uses only the two values.
  runner_manager = {
    instance_name   = "${kubernetes_stateful_set_v1.manager[each.key].metadata[0].name}-0"
    wrapper_address = "unix:///run/grit-wrapper/own/wrapper.sock"
  }

  lifecycle {
    create_before_destroy = true
  }
}

# One health check over all managers. It refers to the drains, so the destroy of an old drain waits for it.
resource "grit_runner_health" "all" {
  runner_managers = { for key, drain in grit_runner_drain.manager : key => drain.runner_manager }
  drains          = { for key, drain in grit_runner_drain.manager : key => drain.id }
  start_drains    = true

  timeouts = {
    create = var.health_timeout
    update = var.health_timeout
  }

  lifecycle {
    create_before_destroy = true

    precondition {
      condition     = alltrue([for version in var.active_versions : length(var.versions[version]) > 0])
      error_message = "Each version of active_versions must have a manager in versions. A rollout to an empty version would drain all runners."
    }
  }
}
