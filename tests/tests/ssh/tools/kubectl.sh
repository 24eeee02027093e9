# kubectl exec.
fail() { say "error: $*"; exit 1; }
[ "$1" = exec ] || fail "unknown command \"$1\" for \"kubectl\""
shift
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  case $1 in
  --stdin) stdin=yes ;;
  --context=my-cluster) context=yes ;;
  --namespace=runners) namespace=yes ;;
  --container=runner) container=pod ;;
  --container=runner-manager-1) container=deployment ;;
  -*) fail "unknown flag: $1" ;;
  *) pod=$1 ;;
  esac
  shift
done
[ "$context" = yes ] || fail "current-context is not set"
case $namespace$pod in
yesrunner-manager-1) owner=pod ;;
yesdeployment/runner-manager-1) owner=deployment ;;
*)
  say "Error from server (NotFound): pods \"$pod\" not found"
  exit 1
  ;;
esac
[ "$stdin$container" = "yes$owner" ] || fail "it would read no input, or choose a container"
[ $# -gt 1 ] || fail "you must specify at least one command for the container"
shift
exec "$@"
