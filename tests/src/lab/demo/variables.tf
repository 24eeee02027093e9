variable "active_versions" {
  description = "The versions that run."
  type        = set(string)
  nullable    = false
}

variable "private_key_path" {
  description = "The key that the hosts let in."
  type        = string
  nullable    = false
}
