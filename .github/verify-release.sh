#!/bin/sh
# Verifies the files of a release before it is published: verify-release.sh DIR VERSION PUBLIC_KEY PLATFORM...
# PUBLIC_KEY is the file of the ASCII-armored key that the registries have.
set -eu
dir=$1 version=$2 key=$3
shift 3

fail() {
  echo "verify-release: $*" >&2
  exit 1
}

# A line of the checksums has 64 digits, two spaces and the name.
listed() {
  cut -c 67- "$2" | grep -qxF -e "$1" || fail "$2 does not list $1"
}

# A keyring with this key only.
GNUPGHOME=$(mktemp -d)
export GNUPGHOME
trap 'rm -rf "$GNUPGHOME"' EXIT
gpg --batch --quiet --no-autostart --import "$key"
cd "$dir"

provider=terraform-provider-grit_$version
for sums in SHA256SUMS "${provider}_SHA256SUMS"; do
  gpg --batch --quiet --no-autostart --verify "$sums.sig" "$sums" || fail "$sums has no signature of the key"
  sha256sum --check --strict --quiet "$sums" || fail "a file differs from $sums"
done
for file in *; do
  case $file in
    SHA256SUMS | *.sig) ;;
    *) listed "$file" SHA256SUMS ;;
  esac
done

listed "${provider}_manifest.json" "${provider}_SHA256SUMS"
for platform in "$@"; do
  listed "${provider}_$platform.zip" "${provider}_SHA256SUMS"
  programs=$provider
  case $platform in
    linux_*)
      wrapper=grit-wrapper_$version
      programs="$programs $wrapper"
      listed "${wrapper}_$platform.tar.gz" SHA256SUMS
      listed "${wrapper}_${platform#linux_}.deb" SHA256SUMS
      case $platform in *_amd64) machine=x86_64 ;; *) machine=aarch64 ;; esac
      listed "grit-wrapper-$version-1.$machine.rpm" SHA256SUMS
      ;;
  esac
  for program in $programs; do
    sbom=${program}_${platform}_sbom.spdx.json
    listed "$sbom" SHA256SUMS
    python3 -c 'import json, sys; assert json.load(open(sys.argv[1]))["packages"]' "$sbom" || fail "$sbom lists no packages"
  done
done
echo "verify-release: $(ls | wc -l) files of $version are complete and signed"
