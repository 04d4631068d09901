"""account-mail — the verdicts on collectors of account mail, on tokens that wait and on what makes the mail

Owns: the checks account.mail, account.collector and account.tokens, with the query that each needs.
Guarantees: read-only. Without a collector that is enabled, or could run by its file, nothing is asked.
See: docs/how-to/send/account-mail.md; sql/accounts/README.md, "Collecting".
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

from collect.daemon import prepared
from operate.doctor.checks import Finding, Limits, Severity, graded_time, span
from shared.errors import ConfigError, DatabaseUnavailable, SchemaMismatch
from shared.how_many import how_many
from shared.postgres import account_schema, database

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared.config.collect.settings import CollectConfig
    from shared.postgres.database import Row

_INSTALL = "run `pillarbox accounts install`, or correct accounts in collect.yaml"


async def account_mail(config: CollectConfig | None, limits: Limits) -> list[Finding]:
    """Every finding; `config` is None without collect.yaml."""
    if config is None or (config.missing() and not config.enabled):
        checks = ("account.mail", "account.collector", "account.tokens")
        return [Finding(check, Severity.OK, "collect.yaml asks for no collector") for check in checks]
    return [mail(config), *await _tables(config, limits)]


def mail(config: CollectConfig) -> Finding:
    """Whether keys and templates can be used."""
    check = "account.mail"
    try:
        templates = prepared(config)[1]
    except ConfigError as error:
        remedy = (
            "correct it, then `pillarbox accounts preview` shows the mail; until then no collector starts or reloads"
        )
        return Finding(check, Severity.ALARM, str(error), remedy)
    keys, languages = how_many(len(config.keys), "key"), ", ".join(templates.languages)
    return Finding(check, Severity.OK, f"{keys}; templates in {languages}")


async def _tables(config: CollectConfig, limits: Limits) -> list[Finding]:
    """What the accounts' own database says."""
    environment, accounts = config.environment, config.accounts
    place = accounts.uri or environment.database.uri
    try:
        conninfo = database.resolve_running(place, environment.var)
        if conninfo is None:
            return []  # server.reached says so
        await asyncio.to_thread(account_schema.check, conninfo, accounts.schema_)  # or httpd would stand still
        connection = await database.connect(conninfo, "pillarbox doctor")
    except SchemaMismatch as error:
        return [Finding("account.tokens", Severity.ALARM, str(error), _INSTALL)]
    except DatabaseUnavailable as error:
        remedy = "start PostgreSQL, or correct accounts.uri in collect.yaml; then run doctor again"
        return [Finding("account.tokens", Severity.ALARM, str(error), remedy)]
    parts = {"schema": account_schema.quoted(accounts.schema_)}
    try:
        await database.fetch(connection, "doctor_session", seconds=limits.patience)
        [position] = await database.fetch_filled(connection, "token_position", parts, most=limits.backlog)
        waiting = await database.fetch_filled(connection, "tokens_by_action", parts, most=limits.backlog)
    except database.REFUSAL as error:
        remedy = "run doctor as the owner of the accounts' tables"
        return [Finding("account.tokens", Severity.WARN, f"could not be looked at: {database.reason(error)}", remedy)]
    finally:
        await connection.close()
    return [collectors(position, enabled=config.enabled), tokens(waiting, position.expired, limits)]


def collectors(row: Row, *, enabled: bool) -> Finding:
    """Who collects, and how far they have come; `row` as token_position has it."""
    check = "account.collector"
    last = "no token was collected yet"
    if row.last is not None:
        last = f"the last token that was collected is {row.last}, {span(timedelta(seconds=row.ago))} ago"
    if not row.connected:
        remedy = "`pillarbox up` runs one where collect.yaml has enabled: true, and `pillarbox collect` anywhere"
        verdict = Severity.WARN if enabled else Severity.NOTE
        return Finding(check, verdict, f"no collector is connected; {last}", remedy)
    deaf = row.connected - row.listening
    if deaf > 0:
        return Finding(check, Severity.NOTE, f"{how_many(deaf, 'collector')} of {row.connected} only polls; {last}")
    return Finding(check, Severity.OK, f"{how_many(row.connected, 'collector')}; {last}")


def tokens(rows: Sequence[Row], expired: int, limits: Limits) -> Finding:
    """How long tokens have waited; `rows` as tokens_by_action has them."""
    check = "account.tokens"
    waits = [
        f"{how_many(row.waiting, 'token')} for {row.action}, the first for {span(timedelta(seconds=row.oldest))}"
        for row in rows
        if row.waiting
    ]
    if expired:
        waits.append(f"in the last day {how_many(expired, 'token')} expired uncollected")
    oldest = timedelta(seconds=max((row.oldest for row in rows), default=0))
    verdict = graded_time(oldest, limits.tokens)
    if verdict >= Severity.WARN:
        remedy = "start a collector, or look for collect.unavailable in its log; tokens expire, and are not sent then"
        return Finding(check, verdict, "; ".join(waits), remedy)
    if expired:
        return Finding(check, Severity.NOTE, "; ".join(waits))
    return Finding(check, Severity.OK, "; ".join(waits) or "none waits")
