#!/bin/sh
# deb — build the Debian package: Pillarbox in a venv of its own, units, sendmail(1), a user and directories
#
# usage: sh scripts/dev/deb.sh FOLDER      (PYTHON=/usr/bin/python3.13 chooses the interpreter; make deb: build/)
#
# Owns: FOLDER/pillarbox_VERSION_ARCHITECTURE.deb, which appears complete or not at all.
# Guarantees: packages are those of deploy/requirements/web.txt, each checked by its hash. The venv belongs to the interpreter it was built with, which the package
#   depends on: build on the release of Debian that it is for (Debian 13 has Python 3.13). Runs no maintainer script.
# Fails: one line on standard error, exit status 1.
# See: deb(5), deb-control(5), sysusers.d(5), tmpfiles.d(5); docs/how-to/start/install-the-debian-package.md.
set -eu

die() { printf 'deb: %s\n' "$*" >&2; exit 1; }

[ $# -eq 1 ] || die 'usage: sh scripts/dev/deb.sh FOLDER'
command -v dpkg-deb >/dev/null 2>&1 || die 'dpkg-deb is missing (not Debian or Ubuntu)'
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/../.."
python=${PYTHON:-/usr/bin/python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null ||
  die "$python is not Python 3.12 or newer; allowed: PYTHON=/path/to/python3.13"
needs=$("$python" -c 'import sys; print(f"python3.{sys.version_info.minor}")')
# An interpreter that no package brings is for trials: dpkg cannot depend on it.
dpkg -S "$(readlink -f "$(command -v "$python")")" >/dev/null 2>&1 || needs=
version=$("$python" -c 'import tomllib; print(tomllib.load(open("pyproject.toml", "rb"))["project"]["version"])')
architecture=$(dpkg --print-architecture)
name=pillarbox_${version}_${architecture}.deb

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/tree
home=$tree/opt/pillarbox
mkdir -p "$home" "$tree/DEBIAN"

rm -rf build/lib build/bdist.*  # of an earlier build, whose modules may be gone by now
"$python" -m venv "$home/.venv" || die "$python makes no venv; install its venv module (python3-venv)"
pip() { "$home/.venv/bin/python" -m pip "$@" >"$work/log" 2>&1 || die "pip: $(tail -n 1 "$work/log")"; }
pip install --disable-pip-version-check -q --require-hashes -r deploy/requirements/web.txt
pip install --disable-pip-version-check -q --no-deps --no-build-isolation .
"$home/.venv/bin/python" -m pip uninstall -q -y setuptools pip >"$work/log" 2>&1 || die "pip: $(tail -n 1 "$work/log")"
# The venv is used at its place in the package, not at the place where it was made.
grep -rlI --null -- "$home" "$home/.venv/bin" "$home/.venv/pyvenv.cfg" | xargs -0 sed -i "s|$tree||g"
find "$home" -name __pycache__ -prune -exec rm -rf {} +
find "$home" -path '*.dist-info/direct_url.json' -delete  # names the folder of the checkout

for each in config deploy docs; do cp -r "$each" "$home/"; done
mkdir -p "$tree/usr/bin" "$tree/usr/sbin" "$tree/usr/lib/systemd/system" "$tree/usr/lib/sysusers.d" "$tree/usr/lib/tmpfiles.d" \
  "$tree/etc/default" "$tree/usr/share/doc/pillarbox"
cp deploy/*.service deploy/*.timer "$tree/usr/lib/systemd/system/"
cp deploy/debian/sysusers.conf "$tree/usr/lib/sysusers.d/pillarbox.conf"
cp deploy/debian/tmpfiles.conf "$tree/usr/lib/tmpfiles.d/pillarbox.conf"
cp deploy/debian/sendmail.default "$tree/etc/default/pillarbox-sendmail"
cp LICENSE "$tree/usr/share/doc/pillarbox/copyright"
gzip -9nc CHANGELOG.md >"$tree/usr/share/doc/pillarbox/changelog.gz"
ln -s /opt/pillarbox/.venv/bin/pillarbox "$tree/usr/bin/pillarbox"
install -m 755 deploy/debian/sendmail "$tree/usr/sbin/sendmail"
ln -s ../sbin/sendmail "$tree/usr/bin/mailq"
ln -s ../sbin/sendmail "$tree/usr/bin/newaliases"
for each in postinst prerm; do install -m 755 "deploy/debian/$each" "$tree/DEBIAN/$each"; done
echo /etc/default/pillarbox-sendmail >"$tree/DEBIAN/conffiles"
chmod -R u=rwX,go=rX "$tree"

cat >"$tree/DEBIAN/control" <<CONTROL
Package: pillarbox
Version: $version
Architecture: $architecture
Maintainer: Pillarbox <pillarbox@localhost>
Section: mail
Priority: optional
Installed-Size: $(du -sk "$tree" | cut -f1)
Depends: ${needs:+$needs, }systemd | systemd-standalone-sysusers, libc6
Recommends: postgresql
Provides: mail-transport-agent
Conflicts: mail-transport-agent
Replaces: mail-transport-agent
Description: open mail-queue server on PostgreSQL
 SMTP in, a partitioned queue in PostgreSQL, SMTP out: mail that was accepted is not lost.
 Has its own Python packages in /opt/pillarbox, and sendmail(1) for cron and scripts.
CONTROL

dpkg-deb --root-owner-group -Zxz -z1 --build "$tree" "$out/$name.partial" >"$work/log" 2>&1 || die "$(tail -n 1 "$work/log")"
mv "$out/$name.partial" "$out/$name"
echo "$out/$name"
