"""one-connection — runs a command's query on one connection to the configured database

Owns: the connection of a command, on whose behalf it acts, and PostgreSQL's refusals and outages as one line.
Guarantees: the connection is closed before the answer is returned. An embedded server that has to be started for it is
    announced on standard error; one that was never made is made by a command only if that is its task.
Raises: DatabaseUnavailable; SchemaMismatch for a schema that is missing; PillarboxError in the caller's words for
    what else PostgreSQL refuses.
"""

from __future__ import annotations

import asyncio
import getpass
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.options import AS
from shared.command_line import OF_OUTPUT
from shared.config.smtpd.load import load_smtpd
from shared.errors import DatabaseUnavailable, PillarboxError, SchemaMismatch, lacks_schema, remedy
from shared.postgres import acting, database
from shared.postgres.embedded import embedded

if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable, Callable


def configured(options: argparse.Namespace) -> str:
    """The libpq connection string of smtpd.yaml in the folder that `--config` names."""
    environment = load_smtpd(options.config / "smtpd.yaml").environment
    return started(environment.database.uri, environment.var)


def chosen(options: argparse.Namespace) -> str:
    """The libpq connection string of `--database`, or `configured`; smtpd.yaml is read only if it is needed."""
    if options.database is None:
        return configured(options)
    ours = database.is_embedded(options.database)
    var = load_smtpd(options.config / "smtpd.yaml").environment.var if ours else Path()
    return started(options.database, var, "--database")


def started(uri: str, var: Path, key: str = "environment.database.uri", *, make: bool = False) -> str:
    """The libpq connection string for the value of `key`; an embedded server that does not run is started.

    `make`: and made first if there is none, which by mistake is an empty one beside that of the daemons.
    """
    if database.resolve_running(uri, var, key) is None:
        if not make and not embedded.is_made(var):
            relative = f"; environment.var, which is {var}, is read from the working folder"
            raise DatabaseUnavailable(
                f"no database was made under {var.absolute()} yet; `pillarbox up` and `pillarbox migrate` make one"
                + ("" if var.is_absolute() else relative)
            )
        sys.stderr.write(f"pillarbox: PostgreSQL starts under {var}; `pillarbox database stop` ends it\n")
    return database.resolve(uri, var, key)


def ask[Answer](
    conninfo: str,
    name: str,
    question: Callable[[database.Connection], Awaitable[Answer]],
    refused: Callable[[BaseException], str] | None = None,
) -> Answer:
    """Ask on one connection that is called `name`; `refused` words a refusal of PostgreSQL's.

    It acts for the principal that `--as` names; without, for the user that runs the command if that is a principal and
    the login may act for others, else for the login.
    """

    async def on_it() -> Answer:
        connection = await acting.connect(conninfo, name)
        try:
            connection.principal = AS.get() or await acting.find_principal(connection, system_user())
            return await question(connection)
        finally:
            await connection.close()

    try:
        return asyncio.run(on_it())
    except database.OUTAGE as error:
        if isinstance(error, OSError) and error.errno in OF_OUTPUT:
            raise
        raise database.unavailable(error) from None
    except database.REFUSAL as error:
        text = refused(error) if refused else f"PostgreSQL refuses this: {database.reason(error)}"
        kind = SchemaMismatch if lacks_schema(error) else PillarboxError
        raise kind(f"{text}{remedy(error)}") from None


def system_user() -> str:
    """The login name of the user that runs the command, as far as the system knows it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
