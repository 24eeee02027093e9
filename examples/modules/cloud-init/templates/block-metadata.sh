#!/bin/sh
# Before each start of the runner: the containers of jobs cannot reach the metadata service of the cloud, which returns the user data with the runner
# token and the private host key. Docker keeps the rules of this chain. A failure prevents the start.
set -eu
block() {
  program=$1
  # On Google Cloud, this address is also the name server.
  set -- DOCKER-USER --protocol tcp ! --destination-port 53 --destination "$2" --jump REJECT
  "$program" --wait --new-chain DOCKER-USER 2>/dev/null || true
  "$program" --wait --check "$@" 2>/dev/null || "$program" --wait --insert "$@"
}
block iptables 169.254.169.254
if [ -e /proc/net/if_inet6 ]; then
  # AWS, Google Cloud
  block ip6tables fd00:ec2::254
  block ip6tables fd20:ce::254
fi
