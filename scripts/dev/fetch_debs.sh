#!/bin/sh
# fetch_debs — unpack Debian packages, and the shared libraries they need, into a folder
#
# usage: sh scripts/dev/fetch_debs.sh FOLDER PACKAGE...
#
# Owns: FOLDER, which appears complete or not at all, and FOLDER.partial meanwhile.
# Guarantees: needs no root; runs no maintainer script, starts no service, installs nothing; downloads its own package
#   lists, so it works on images without any; checks signatures with the system's keyring as usual.
# Fails: one line on standard error, exit status 1.
# See: apt.conf(5) for Dir::State and Dir::Cache, dpkg-deb(1).
set -eu

die() { printf 'fetch_debs: %s\n' "$*" >&2; exit 1; }

[ $# -ge 2 ] || die 'usage: sh scripts/dev/fetch_debs.sh FOLDER PACKAGE...'
command -v apt-get >/dev/null 2>&1 && command -v dpkg-deb >/dev/null 2>&1 ||
  die 'this machine has no apt-get and dpkg-deb (not Debian or Ubuntu)'

mkdir -p "$(dirname "$1")"
folder=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
partial=$folder.partial
shift

rm -rf "$partial"
mkdir -p "$partial/lists/partial" "$partial/cache/archives/partial" "$partial/debs" "$partial/tree"
trap 'rm -rf "$partial"' EXIT

# The settings are in a file because a checkout's path may contain spaces. As root, apt would download as the user
# _apt, who may lack access to this folder; so the sandbox user is turned off.
cat >"$partial/apt.conf" <<CONF
Dir::State "$partial";
Dir::State::lists "$partial/lists";
Dir::State::status "/var/lib/dpkg/status";
Dir::Cache "$partial/cache";
APT::Sandbox::User "";
Acquire::Languages "none";
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
CONF
apt() { apt-get -qq -c "$partial/apt.conf" "$@"; }

apt update >"$partial/log" 2>&1 ||
  die "apt-get update failed: $(grep -m1 '^E:' "$partial/log" || tail -n 1 "$partial/log")"

# A simulated installation names exactly the libraries that this system lacks. From Debian 13 on, promtool is a package of its own.
libraries=$(apt -s install --no-install-recommends "$@" 2>"$partial/log" | sed -En 's/^Inst (lib[^ ]*|promtool) .*/\1/p') || true

# shellcheck disable=SC2086  # package names have no spaces; the list may be empty
(cd "$partial/debs" && apt download "$@" $libraries >"$partial/log" 2>&1) ||
  die "apt-get download $* failed: $(grep -m1 '^E:' "$partial/log" || tail -n 1 "$partial/log")"

for deb in "$partial"/debs/*.deb; do
  dpkg-deb -x "$deb" "$partial/tree" || die "$deb cannot be unpacked"
done
rm -rf "$folder"
mv "$partial/tree" "$folder"
