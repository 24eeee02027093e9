# aws ssm start-session, with the document for SSH: carries to the port on the instance.
[ "$1 $2" = "ssm start-session" ] || fail "Invalid choice: $1 $2"
shift 2
while [ $# -gt 1 ]; do
  case $1 in
  --target) target=$2 ;;
  --document-name) document=$2 ;;
  --parameters) parameters=$2 ;;
  *) fail "Unknown options: $1" ;;
  esac
  shift 2
done
[ $# = 0 ] || fail "argument $1: expected one argument"
[ "$target" = i-07 ] || fail "TargetNotConnected: $target is not connected"
[ "$document" = AWS-StartSSHSession ] || fail "InvalidDocument: $document"
case $parameters in
portNumber=[0-9]*) ;;
*) fail "InvalidParameters: $parameters" ;;
esac
say "Starting session with SessionId: deploy-0f"
exec "$CARRY" tcp "$IP" "${parameters#portNumber=}"
