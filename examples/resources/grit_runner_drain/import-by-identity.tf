import {
  to       = grit_runner_drain.example["blue-v1"]
  identity = { instance_id = "i-0123456789abcdef0" }
}
