#!/bin/sh
# base_images — make the base images of the compose file from Debian's packages, where no image can be pulled
#
# usage: sh scripts/dev/base_images.sh FOLDER
#
# Owns: the images pillarbox-base:trixie (Python 3.13), pillarbox-postgres:trixie (PostgreSQL 17 with pg_cron, which answers to
#   the variables POSTGRES_* as the published image does) and pillarbox-prometheus:trixie, and FOLDER/docker-compose, Debian
#   13's plugin.
# Guarantees: what is there already is kept. pip's and apt's settings of this machine go into the images, so keep them here.
# Needs: root, debootstrap, and a Docker daemon that runs.
# Fails: the failed program's own words, exit status 1.
set -eu

[ $# -eq 1 ] || { echo 'usage: sh scripts/dev/base_images.sh FOLDER' >&2; exit 1; }
has() { docker image inspect "$1" >/dev/null 2>&1; }
mkdir -p "$1"
folder=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
if has pillarbox-base:trixie && has pillarbox-postgres:trixie && has pillarbox-prometheus:trixie &&
  [ -x "$folder/docker-compose" ]; then exit 0; fi

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"
debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates trixie "$root" >"$folder/debootstrap.log" 2>&1 ||
  { tail -n 3 "$folder/debootstrap.log" >&2; exit 1; }
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
if [ -e /etc/pip.conf ]; then cp /etc/pip.conf "$root/etc/pip.conf"; fi
tar -C "$root" -c . | docker import - pillarbox-base:trixie >/dev/null

cp /etc/resolv.conf "$root/etc/resolv.conf"
chroot "$root" sh -ec '
  apt-get update -qq
  cd /tmp && apt-get download -qq docker-compose && dpkg-deb -x docker-compose_*.deb compose && rm docker-compose_*.deb
  printf "#!/bin/sh\nexit 101\n" >/usr/sbin/policy-rc.d && chmod 755 /usr/sbin/policy-rc.d
  mkdir -p /etc/postgresql-common/createcluster.d
  echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.d/none.conf
  DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends postgresql-17 postgresql-17-cron
' >"$folder/install.log" 2>&1 || { tail -n 3 "$folder/install.log" >&2; exit 1; }
cp "$root/tmp/compose/usr/libexec/docker/cli-plugins/docker-compose" "$folder/docker-compose"
rm -rf "$root/tmp/compose"
install -m 755 "$here/postgres_entrypoint.sh" "$root/usr/local/bin/docker-entrypoint.sh"
tar -C "$root" -c . | docker import -c 'ENTRYPOINT ["docker-entrypoint.sh"]' -c 'ENV PG_MAJOR=17' \
  -c 'ENV PATH=/usr/lib/postgresql/17/bin:/usr/local/bin:/usr/bin:/bin' - pillarbox-postgres:trixie >/dev/null

# As the published image: an account without rights owns the folder of the data.
chroot "$root" sh -ec '
  DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends prometheus
  mkdir -p /prometheus && chown 65534:65534 /prometheus
' >>"$folder/install.log" 2>&1 || { tail -n 3 "$folder/install.log" >&2; exit 1; }
tar -C "$root" -c . | docker import -c 'ENTRYPOINT ["/usr/bin/prometheus"]' -c 'USER 65534' - pillarbox-prometheus:trixie >/dev/null
