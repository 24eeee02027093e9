output "runner_managers" {
  description = "The runner managers, by key, for the module `rollout` and for the resources of the provider. It has no private key, so `for_each` accepts it: set the key in the provider block."
  value = {
    for key, manager in local.runner_managers : key => merge(manager, {
      # GRIT names its output "socket path": a plain path is accepted as well.
      wrapper_address = try(startswith(manager.wrapper_address, "/"), false) ? "unix://${manager.wrapper_address}" : manager.wrapper_address
    })
  }

  precondition {
    condition     = alltrue([for manager in local.runner_managers : manager.address != null])
    error_message = "A value of modules has no address: it is not a module aws/runner or google/runner of GRIT, or its instance has no address."
  }

  precondition {
    condition     = alltrue([for manager in local.runner_managers : manager.wrapper_address != null])
    error_message = "A module has no wrapper address: set runner_wrapper = { enabled = true } in it."
  }
}
