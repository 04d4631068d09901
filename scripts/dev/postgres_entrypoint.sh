#!/bin/sh
# postgres_entrypoint — start PostgreSQL in a container, over data that it makes at the first start
#
# Owns: /var/lib/postgresql/data. Guarantees: POSTGRES_USER, POSTGRES_PASSWORD, POSTGRES_PASSWORD_FILE and POSTGRES_DB mean what
#   they mean to the published image, and so does a command other than postgres; data appears whole or not at all.
set -eu
if [ "${1:-postgres}" != postgres ]; then exec "$@"; fi
if [ $# -gt 0 ]; then shift; fi
if [ -n "${POSTGRES_PASSWORD_FILE:-}" ]; then POSTGRES_PASSWORD=$(cat "$POSTGRES_PASSWORD_FILE"); fi
data=/var/lib/postgresql/data
as_postgres() { setpriv --reuid postgres --regid postgres --init-groups "$@"; }

chown postgres: /var/lib/postgresql
if [ ! -s "$data/PG_VERSION" ]; then
  rm -rf "$data.partial"
  printf '%s' "$POSTGRES_PASSWORD" >/tmp/password
  chown postgres: /tmp/password
  as_postgres initdb -D "$data.partial" -U "$POSTGRES_USER" --pwfile=/tmp/password --auth=scram-sha-256 --encoding=UTF8
  rm /tmp/password
  echo 'host all all all scram-sha-256' >>"$data.partial/pg_hba.conf"
  echo "CREATE DATABASE \"$POSTGRES_DB\"" | as_postgres postgres --single -D "$data.partial" postgres
  mv "$data.partial" "$data"
fi
mkdir -p /run/postgresql && chown postgres: /run/postgresql
exec setpriv --reuid postgres --regid postgres --init-groups postgres -D "$data" -c listen_addresses='*' "$@"
