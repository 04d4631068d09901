# Pillarbox in one image: smtpd, queued, httpd and the command `pillarbox`; which of them runs is the container's command.
# Guarantees: packages are those of deploy/requirements, each checked by its hash; the image has no compiler, no pip, and
# runs as a user without rights. By digest where images can be pulled: --build-arg PYTHON_IMAGE=python:3.13-slim@sha256:…
ARG PYTHON_IMAGE=python:3.13-slim
FROM ${PYTHON_IMAGE} AS build
# `web` or `analytics`, which is web and more.
ARG REQUIREMENTS=web

# A venv of its own, so that the image also builds on a distribution's Python.
RUN python3 -m venv /opt/pillarbox
ENV PATH=/opt/pillarbox/bin:$PATH PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /usr/src/pillarbox
COPY deploy/requirements deploy/requirements
RUN pip install -q --require-hashes -r deploy/requirements/$REQUIREMENTS.txt
COPY pyproject.toml README.md LICENSE ./
COPY smtpd smtpd
COPY queued queued
COPY collect collect
COPY shared shared
COPY operate operate
COPY httpd httpd
COPY scripts scripts
COPY sql sql
COPY config config
COPY deploy deploy
RUN pip install -q --no-deps --no-build-isolation . && pip uninstall -q -y setuptools pip

FROM ${PYTHON_IMAGE}
# For analytics: --build-arg PACKAGES=default-jre-headless, because Spark needs a Java.
ARG PACKAGES=
RUN [ -z "$PACKAGES" ] || { apt-get update -q && apt-get install -qy --no-install-recommends $PACKAGES && rm -rf /var/lib/apt/lists/*; }
COPY --from=build /opt/pillarbox /opt/pillarbox
ENV PATH=/opt/pillarbox/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1

# The daemons need no rights beyond their sockets; the queue lives in PostgreSQL.
RUN useradd --system --uid 999 --user-group --home-dir /var/lib/pillarbox --create-home pillarbox
USER pillarbox
WORKDIR /var/lib/pillarbox
COPY config config
RUN mkdir -p lake var/workers
# A daemon whose `metrics.listen` has this port. /healthy, never /ready: while PostgreSQL is away a worker holds results in
# memory. Commands that are not daemons run with --no-healthcheck.
ENV PILLARBOX_HEALTHY=http://127.0.0.1:9464/healthy
HEALTHCHECK --interval=5s --timeout=5s --retries=6 --start-period=60s \
  CMD ["python3", "-c", "import os, urllib.request; urllib.request.urlopen(os.environ['PILLARBOX_HEALTHY'], timeout=4)"]
CMD ["pillarbox", "--help"]
