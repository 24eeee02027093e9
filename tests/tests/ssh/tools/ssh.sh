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
if [ -n "$forward" ]; then
  # An address can have brackets, and an IPv6 address needs them.
  host=${forward%:*} port=${forward##*:}
  case $host in
  \[*\]) host=${host#?} && host=${host%?} ;;
  *:*) fail "Bad stdio forwarding specification '$forward'" ;;
  esac
  exec "$CARRY" tcp "$host" "$port"
fi
[ $# -gt 0 ] || fail "it would open a shell"
exec sh -c "$*"
