# ssh, as far as the recipes use it. `openssh_recipes_connect` runs the real one.
while [ $# -gt 0 ]; do
  case $1 in
  -o)
    [ "$2" = BatchMode=yes ] || fail "command-line: Bad configuration option: $2"
    shift
    ;;
  -W) forward=$2 && shift ;;
  -T) ;;
  -*) fail "unknown option -- $1" ;;
  *) break ;;
  esac
  shift
done
case $1 in
jump@bastion.example.com | "deploy@$IP") ;;
*) fail "Could not resolve hostname $1" ;;
esac
shift
say "Authorized use only."
[ -z "$forward" ] || exec "$CARRY" tcp "${forward%:*}" "${forward##*:}"
[ $# -gt 0 ] || fail "it would open a shell"
exec sh -c "$*"
