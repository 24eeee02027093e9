# vault: a login with the identity of an EC2 instance, and the signature of a host key. The authority is a real one.
case "$1 $2" in
"login -method=aws")
  [ "$3" = role=runner-manager ] || fail "entry for role $3 not found"
  echo "Success! You are now authenticated."
  ;;
"write -field=signed_key")
  [ "$3" = ssh-host/sign/runner-manager ] || fail "no handler for route $3"
  shift 3
  for argument; do
    case $argument in
    cert_type=host) kind=-h ;;
    valid_principals=?*) principals=${argument#*=} ;;
    public_key=@?*) key=${argument#*=@} ;;
    *) fail "unknown field $argument" ;;
    esac
  done
  [ "$kind" = -h ] || fail "cert_type 'user' is not allowed by role"
  cp "$key" "$TOOLS/signed.pub"
  ssh-keygen -q -s "$TOOLS/authority" -h -I host -n "$principals" "$TOOLS/signed.pub" && cat "$TOOLS/signed-cert.pub"
  ;;
*) fail "unknown command $*" ;;
esac
