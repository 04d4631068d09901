# PostgreSQL with pg_cron, by which the queue is maintained also while no worker runs (sql/pg_cron.sql).
# By digest where images can be pulled: --build-arg POSTGRES_IMAGE=postgres:18@sha256:…
ARG POSTGRES_IMAGE=postgres:18
FROM ${POSTGRES_IMAGE}
RUN set -e; package="postgresql-${PG_MAJOR}-cron"; if ! dpkg -s "$package" >/dev/null 2>&1; then \
      apt-get update -q && apt-get install -qy --no-install-recommends "$package" && rm -rf /var/lib/apt/lists/*; fi
