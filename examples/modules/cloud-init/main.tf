locals {
  config_toml = templatefile("${path.module}/templates/config.toml.tftpl", {
    concurrent          = var.concurrent
    listen_address      = var.listen_address
    global_config       = var.global_config
    name                = var.name
    gitlab_url          = var.gitlab_url
    runner_token        = var.runner_token
    executor            = var.executor
    runners_config      = var.runners_config
    boot_verify_timeout = var.boot_verify_timeout
  })

  # The sshd configuration below restricts the deploy user. These options prevent commands if sshd does not read that file.
  restrictions = "restrict,port-forwarding,command=\"/bin/false\",permitopen=\"[/run/grit-wrapper/gitlab-runner.service.sock]:*\""

  # Only a flag allows other hosts, not a variable.
  metrics = var.metrics == null ? [] : [{
    host    = "--http-listen tcp://127.0.0.1:9253"
    network = "--http-listen tcp://0.0.0.0:9253 --insecure-http-beyond-loopback"
  }[var.metrics]]

  # Jobs run in containers on this host. Those of the other executors run on other hosts, or as processes of this host.
  has_containers = var.executor == "docker"

  cloud_config = {
    # The host key is known before the first connection.
    ssh_deletekeys = true
    ssh_keys = {
      ed25519_private = var.host_key.private
      ed25519_public  = var.host_key.public
    }

    users = [
      "default",
      {
        name  = var.deploy_user
        shell = "/bin/sh"
        # Before the package is installed: a session of SSH has the groups of its login. cloud-init creates the group, and the package accepts it.
        groups = "grit-wrapper"
        # No password, but not locked: sshd rejects the keys of locked users.
        lock_passwd         = false
        hashed_passwd       = "*"
        ssh_authorized_keys = [for key in var.deploy_public_keys : "${local.restrictions} ${trimspace(key)}"]
      },
    ]

    # Before the users are created.
    write_files = concat([
      {
        path        = "/var/lib/grit/config.toml"
        permissions = "0600"
        content     = local.config_toml
      },
      {
        path        = "/var/lib/grit/first-boot.sh"
        permissions = "0700"
        content = templatefile("${path.module}/templates/first-boot.sh.tftpl", {
          install_runner   = var.install_runner
          install_fleeting = var.install_fleeting
          wrapper_package  = var.wrapper_package
          deploy_user      = var.deploy_user
        })
      },
      {
        path        = "/etc/systemd/system/gitlab-runner.service.d/zz-deployment.conf"
        permissions = "0644"
        content     = <<-EOT
          # Generation: ${var.generation}
          [Service]
          ${local.has_containers ? "ExecStartPre=/var/lib/grit/block-metadata.sh" : ""}
        EOT
      },
      {
        # The deploy user can open the socket of the wrapper, and nothing else. Options of a key cannot deny listeners on unix sockets.
        path        = "/etc/ssh/sshd_config.d/grit-deploy-user.conf"
        permissions = "0644"
        content     = templatefile("${path.module}/templates/deploy-forwarding.conf.tftpl", { deploy_user = var.deploy_user })
      },
      ], [
      for name in local.has_containers ? ["block-metadata.sh"] : [] : {
        path        = "/var/lib/grit/${name}"
        permissions = "0700"
        content     = file("${path.module}/templates/${name}")
      }
      ], [
      for flags in local.metrics : {
        path        = "/etc/systemd/system/grit-wrapper.service.d/deployment.conf"
        permissions = "0644"
        content     = <<-EOT
          [Service]
          ExecStart=
          ExecStart=/usr/bin/grit-wrapper run --unit gitlab-runner.service ${flags}
        EOT
      }
    ])

    runcmd = [["/var/lib/grit/first-boot.sh"]]
  }
}
