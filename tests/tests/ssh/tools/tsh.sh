# tsh proxy ssh: carries to the SSH port of a node.
[ "$1 $2" = "proxy ssh" ] || fail "unexpected $1 $2"
shift 2
for argument; do
  case $argument in
  --proxy=teleport.example.com:443) proxy=yes ;;
  -*) fail "unknown long flag '$argument'" ;;
  *) destination=$argument ;;
  esac
done
[ "$proxy" = yes ] || fail "no proxy is known"
[ "${destination%@*}" = "$LOGIN" ] || fail "access denied to ${destination%@*}"
node=${destination#*@}
say "Session recorded."
exec "$CARRY" tcp "${node%:*}" "${node##*:}"
