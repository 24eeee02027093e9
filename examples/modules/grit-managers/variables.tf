variable "modules" {
  description = "Modules `aws/runner` or `google/runner` of GRIT, by the key of the runner manager: for example `module.runner` with `for_each`."
  type        = any
  nullable    = false
}
