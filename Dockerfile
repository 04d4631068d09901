# Pillarbox in one image: smtpd, queued, httpd and the command `pillarbox`; which of them runs is the container's command.
ARG PYTHON_IMAGE=python:3.13-slim
FROM ${PYTHON_IMAGE}
# For analytics: --build-arg EXTRAS=web,analytics --build-arg PACKAGES=default-jre-headless (Spark needs a Java).
ARG EXTRAS=web
ARG PACKAGES=
RUN [ -z "$PACKAGES" ] || { apt-get update -q && apt-get install -qy --no-install-recommends $PACKAGES && rm -rf /var/lib/apt/lists/*; }

# A venv of its own, so that the image also builds on a distribution's Python.
RUN python3 -m venv /opt/pillarbox
ENV PATH=/opt/pillarbox/bin:$PATH PYTHONUNBUFFERED=1

WORKDIR /usr/src/pillarbox
COPY pyproject.toml constraints.txt README.md LICENSE ./
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
RUN pip install --no-cache-dir --disable-pip-version-check -q -c constraints.txt ".[$EXTRAS]"

# The daemons need no rights beyond their sockets; the queue lives in PostgreSQL.
RUN useradd --system --home-dir /var/lib/pillarbox --create-home pillarbox
USER pillarbox
WORKDIR /var/lib/pillarbox
COPY config config
RUN mkdir lake
CMD ["pillarbox", "--help"]
