# gcloud compute start-iap-tunnel and gcloud compute ssh.
[ "$1" = compute ] || fail "Invalid choice: '$1'"
verb=$2
shift 2
while [ $# -gt 0 ]; do
  case $1 in
  --project=my-project) project=yes ;;
  --zone=europe-west1-b) zone=yes ;;
  --listen-on-stdin) stdin=yes ;;
  --tunnel-through-iap) tunnel=yes ;;
  --quiet) quiet=yes ;;
  --command=?*) command=${1#--command=} ;;
  -*) fail "unrecognized arguments: $1" ;;
  *) [ -z "$instance" ] && instance=$1 || port=$1 ;;
  esac
  shift
done
[ "$project$zone" = yesyes ] || fail "Underspecified resource: project and zone"
say "WARNING: To increase the performance of the tunnel, consider installing NumPy."
case $verb in
start-iap-tunnel)
  [ "$instance" = runner-manager-1 ] || fail "The resource '$instance' was not found"
  [ -n "$port" ] || fail "argument INSTANCE_PORT: Must be specified"
  [ "$stdin" = yes ] || fail "it would listen on a local port"
  exec "$CARRY" tcp "$IP" "$port"
  ;;
ssh)
  [ "$instance" = deploy@runner-manager-1 ] || fail "The resource '$instance' was not found"
  [ "$tunnel$quiet" = yesyes ] || fail "it would use an external address, or ask for a passphrase"
  [ -n "$command" ] || fail "it would open a shell"
  exec sh -c "$command"
  ;;
*) fail "Invalid choice: '$verb'" ;;
esac
