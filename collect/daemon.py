"""daemon — builds a collector's parts and owns their order

Owns: the start (database and accounts proven, templates tried, keys read, then ready), the reload of templates,
    keys and mail, and the stop: begin no batch, finish the one in hand, close.
Guarantees: nothing half-started. A configuration that cannot be used changes nothing.
Raises: PillarboxError for errors that an operator can correct.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from collect import metrics, wake
from collect.batch import Pace
from collect.collector import Collector, forget
from collect.lines import Lines
from collect.message import Composer
from collect.queue import Queue
from collect.templates import Templates
from collect.token import Signer
from shared import lifecycle, secret_files
from shared.errors import ConfigError, PillarboxError, SchemaMismatch, error_text
from shared.observe import events
from shared.postgres import account_schema, database, migrate
from shared.postgres.presence import Presence
from shared.security.account_token import read_key

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from collect.mailroom import Settings
    from shared.config.collect.settings import CollectConfig

_CHANNEL = "token_insert"
_QUEUE_CONNECTIONS = 1
_STOPPING = 10.0  # seconds for a line that is being written


async def run(config: CollectConfig, again: Callable[[], CollectConfig]) -> None:
    """Queue mail until a signal comes. `again` reads the configuration as it is now, and raises ConfigError."""
    signer, templates = prepared(config)
    environment, accounts = config.environment, config.accounts
    queue = database.resolve(environment.database.uri, environment.var)
    migrate.check(queue)
    where = database.resolve(accounts.uri, environment.var, "accounts.uri") if accounts.uri else queue
    account_schema.check(where, accounts.schema_)
    schema = account_schema.quoted(accounts.schema_)
    installation = str(await _ask(where, "token_installation", schema))
    pool = await database.open_pool(queue, "pillarbox collect", _QUEUE_CONNECTIONS) if accounts.uri else None
    try:
        output = Queue(Composer(config.mail, templates, signer, installation), pool)
        pace = Pace(config.batch.least, config.batch.most, config.batch.wait.total_seconds())
        collector = Collector(where, schema, pace, config.poll.total_seconds(), output)

        async def reloaded() -> None:
            try:
                new = again()
                made = prepared(new)
            except Exception as error:  # noqa: BLE001 - after any error the running configuration stays
                events.emit("daemon.reload_refused", error=error_text(error))
                return
            if ignored := _ignored(config, new):
                events.emit("daemon.reload_ignored", keys=", ".join(ignored))
            output.composer = Composer(new.mail, made[1], made[0], installation)
            events.setup(new.environment.log.level)
            events.emit("daemon.reloaded")

        what = f"accounts in schema {accounts.schema_}"
        limit = config.shutdown.timeout.total_seconds()
        async with metrics.observing(config.metrics, where, schema) as address:
            presence = Presence(queue, "collect")
            parts = {"forget": forget(where, schema, config.keep), "presence": presence.run()}
            await _serve(collector, where, _CHANNEL, what, parts, limit, reloaded, address, presence)
    finally:
        if pool is not None:
            await pool.close()


async def run_lines(settings: Settings) -> None:
    """Write mailroom's lines to standard output until a signal comes."""
    conninfo = database.resolve(settings.conninfo, Path("var"), "MAILROOM_DATABASE_URL")
    schema = await _ask(conninfo, "token_schema")
    if schema is None:
        raise SchemaMismatch("the database has no tokens on its search path; run `pillarbox accounts install`")
    account_schema.check(conninfo, schema)
    pace = Pace(settings.limit, settings.limit, settings.timeout)
    collector = Collector(conninfo, account_schema.quoted(schema), pace, settings.poll, Lines(Signer(settings.key)))
    await _serve(collector, conninfo, settings.channel, f"lines of schema {schema}", {}, _STOPPING)


def prepared(config: CollectConfig) -> tuple[Signer, Templates]:
    """What signs, and the templates; ConfigError for what is missing."""
    if absent := config.missing():
        raise ConfigError(
            f"{', '.join('.'.join(place) for place in absent)}: missing; the collector cannot run without"
        )
    keys = read_keys(config)
    first = config.keys[0].id
    signer = Signer(keys[first], first if config.form == "bound" else None)
    return signer, Templates(config.mail.templates, config.mail.language)


def read_keys(config: CollectConfig) -> dict[str, bytes]:
    """The keys by their ids."""
    keys = {}
    for key in config.keys:
        try:
            keys[key.id] = read_key(secret_files.read(key))
        except (ValueError, PillarboxError) as error:
            raise ConfigError(f"keys: {key.id}: {error}") from None
    return keys


async def _serve(
    collector: Collector,
    conninfo: str,
    channel: str,
    what: str,
    more: dict[str, Coroutine[object, object, None]],
    limit: float,
    reloaded: Callable[[], Awaitable[None]] | None = None,
    address: str | None = None,
    presence: Presence | None = None,
) -> None:
    async def stop() -> None:
        collector.stop()
        await lifecycle.step("batch", collector.drained(), limit, on=lambda: "the batch in hand")
        if presence is not None:
            await lifecycle.step("presence", presence.leave(), 1.0, on=lambda: "PostgreSQL")

    parts = {
        "collector": collector.run(),
        "wakeup": wake.listen(conninfo, channel, collector.due, collector.missed),
        **more,
    }
    started = {"role": "collect", "pid": os.getpid(), "serves": what, "metrics": address}
    await lifecycle.serve(parts, what, stop, reloaded, started=started)


async def _ask(conninfo: str, name: str, schema: str = "") -> str | None:
    """The one value of a query at the start."""
    connection = await database.connect(conninfo, "pillarbox collect")
    try:
        rows = await database.fetch_filled(connection, name, {"schema": schema})
        return str(rows[0][0]) if rows else None
    finally:
        await connection.close()


def _ignored(config: CollectConfig, new: CollectConfig) -> list[str]:
    """Changes that need a restart."""
    restart = ("environment", "accounts", "batch", "poll", "keep", "metrics", "shutdown")
    return [
        name
        for name in restart
        if getattr(config, name) != getattr(new, name)
        and not (
            name == "environment"
            and config.environment.model_copy(update={"log": new.environment.log}) == new.environment
        )
    ]
