# aws ec2 get-console-output, of an instance that has no output at first.
[ "$*" = "ec2 get-console-output --latest --instance-id i-07 --query Output --output text" ] || fail "Unknown options: $*"
[ -e "$TOOLS/booted" ] || { touch "$TOOLS/booted" && echo None && exit; }
cat "$TOOLS/console"
