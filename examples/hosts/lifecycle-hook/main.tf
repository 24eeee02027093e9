# A group of runner managers that AWS holds until their last job. The heartbeat timeout limits the hold: 100 x 1800 s are more than
# the maximum of 48 hours.
resource "aws_autoscaling_group" "managers" {
  name                = "runner-managers"
  vpc_zone_identifier = var.subnet_ids
  min_size            = 2
  max_size            = 4

  launch_template {
    id      = var.launch_template_id
    version = var.launch_template_version
  }

  # Replaces a spot instance when AWS recommends it, which is usually before the interruption notice.
  capacity_rebalance = true

  # In the group, so that no instance starts before its hook exists.
  initial_lifecycle_hook {
    name                 = "drain"
    lifecycle_transition = "autoscaling:EC2_INSTANCE_TERMINATING"
    heartbeat_timeout    = 1800
    default_result       = "ABANDON"
  }

  # A drain that takes longer than the hook: AWS keeps the instance until you terminate it.
  instance_lifecycle_policy {
    retention_triggers {
      terminate_hook_abandon = "retain"
    }
  }
}

# The role of the instances needs this policy.
data "aws_iam_policy_document" "lifecycle_hook" {
  statement {
    actions   = ["autoscaling:CompleteLifecycleAction", "autoscaling:RecordLifecycleActionHeartbeat"]
    resources = [aws_autoscaling_group.managers.arn]
  }
}

variable "subnet_ids" {
  description = "Subnets of the runner managers."
  type        = list(string)
}

variable "launch_template_id" {
  description = "Launch template of the runner managers."
  type        = string
}

variable "launch_template_version" {
  description = "Version of the launch template."
  type        = string
}
