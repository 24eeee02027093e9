# aws autoscaling, with the calls for lifecycle hooks: writes each accepted call to the file `calls`. Fails once if the file `outage-ACTION` exists.
[ "$1 $2 $3 $4 $5" = "--cli-connect-timeout 5 --cli-read-timeout 10 autoscaling" ] || fail "Unknown options: $*"
[ "$AWS_DEFAULT_REGION" = eu-west-1 ] || fail "You must specify a region."
action=$6
shift 6
group='' hook='' instance='' result=''
while [ $# -gt 1 ]; do
  case $1 in
  --auto-scaling-group-name) group=$2 ;;
  --lifecycle-hook-name) hook=$2 ;;
  --instance-id) instance=$2 ;;
  --lifecycle-action-result) result=$2 ;;
  *) fail "Unknown options: $1" ;;
  esac
  shift 2
done
[ $# = 0 ] || fail "argument $1: expected one argument"
[ "$group $hook $instance" = "runner-managers drain i-07" ] || fail "ValidationError: No active Lifecycle Action found"
case $action in
record-lifecycle-action-heartbeat) [ -z "$result" ] || fail "Unknown options: --lifecycle-action-result" ;;
complete-lifecycle-action) [ "$result" = CONTINUE ] || fail "argument --lifecycle-action-result is required" ;;
*) fail "Invalid choice: $action" ;;
esac
! rm "$TOOLS/outage-$action" 2>/dev/null || fail "Could not connect to the endpoint URL"
echo "$action" >>"$TOOLS/calls"
