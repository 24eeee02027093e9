# boundary connect, with a program behind --exec, and boundary connect ssh.
[ "$1" = connect ] || fail "unknown command $1"
shift
[ "$1" != ssh ] || { helper=ssh && shift; }
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  case $1 in
  -target-name=runner-manager-1) target=yes ;;
  -target-scope-name=my-project) scope=yes ;;
  -exec) program=$2 && shift ;;
  -username=deploy) user=deploy ;;
  -remote-command=?*) command=${1#-remote-command=} ;;
  *) fail "flag provided but not defined: $1" ;;
  esac
  shift
done
[ "$target$scope" = yesyes ] || fail "a target needs a name and a scope"
[ $# = 0 ] || shift
if [ "$helper" = ssh ]; then
  # What stands behind `--` goes to ssh.
  set -- "$@" "$user@$IP" "$command"
  exec "$TOOLS/ssh" "$@"
fi
# The proxy is announced on standard output, and the program gets its address in the environment.
printf '\nProxy listening information:\n  Address:  %s\n' "$IP"
export BOUNDARY_PROXIED_IP="$IP" BOUNDARY_PROXIED_PORT="$PORT"
exec "$program" "$@"
