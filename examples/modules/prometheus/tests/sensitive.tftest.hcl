mock_provider "local" {}

run "sensitive_map_is_accepted" {
  command = plan

  variables {
    runner_managers = sensitive({ a = { instance_name = "a", address = "10.0.0.7" } })
  }

  assert {
    condition     = jsondecode(output.targets["a"])[0].targets == ["10.0.0.7:9253"]
    error_message = "The output grit_runner_managers of a deployment is sensitive."
  }
}
