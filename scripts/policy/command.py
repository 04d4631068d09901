"""command — `pillarbox policy`: checks the policy, and shows what it would do to an envelope, and why

Owns: the command lines of check and test, the table, `--json` and the exit status.
Guarantees: nothing is written, counted or started. test exits 0 if every recipient is accepted (on hold or not), 1 if
    anything is refused; a configuration that cannot be used is 78 for both (sysexits.h).
Raises: PillarboxError for errors that an operator can correct.
See: docs/how-to/accept/test-policy.md; scripts/policy/trial.py.
"""

from __future__ import annotations

import argparse
import asyncio
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from operate.transports import check_policy
from scripts.options import add_config, finish
from scripts.output import records
from scripts.output.table import Column, Table
from scripts.policy.trial import Trial, TriedMail, attempt
from scripts.terminal import printable
from shared import masking
from shared.config.queued.load import load_queued
from shared.config.smtpd.load import load_smtpd
from shared.config.units import parse_size
from shared.errors import PillarboxError
from shared.how_many import how_many
from shared.mail import address
from shared.postgres import database
from smtpd.envelope.client import User
from smtpd.login.user_sources import FileUsers, Several, TableUsers, WrittenUsers
from smtpd.login.users import UsersUnavailable
from smtpd.policy.compile import load_policy
from smtpd.policy.list_query import ListQueries

if TYPE_CHECKING:
    from shared.config.smtpd.settings import SmtpdConfig
    from shared.mail.message import Address

_STEPS: Final = (
    Column("phase", whole=True),
    Column("rule"),
    Column("fits"),
    Column("does", least=16),
    Column("because", wraps=True),
)


class _NoInput(PillarboxError):
    """A file named on the command line cannot be read."""

    exit_status = 66  # EX_NOINPUT, sysexits.h


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `policy` and its verbs to the command line."""
    parser = subparsers.add_parser("policy", help="check the rules of smtpd.yaml, and ask what they would do")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    verb = verbs.add_parser("check", help="check whether smtpd.yaml and the files of its lists can be used")
    finish(verb, check)
    verb = verbs.add_parser("test", help="show what would happen to an envelope, and why, rule by rule")
    add_config(verb)
    verb.add_argument("--client", required=True, type=_client, metavar="ADDRESS", help="IP address it comes from")
    verb.add_argument("--clientname", metavar="NAME", help="the client's host name (default: unknown)")
    verb.add_argument("--helo", default="client.invalid", metavar="NAME", help="its name in HELO (client.invalid)")
    verb.add_argument("--user", metavar="NAME", help="the user it authenticates as")
    verb.add_argument("--from", dest="sender", required=True, type=_sender, metavar="ADDRESS", help='"" for null')
    verb.add_argument(
        "--to", dest="recipients", required=True, action="append", type=_address, metavar="ADDRESS", help="repeatable"
    )
    verb.add_argument("--size", type=_size, metavar="SIZE", help="as MAIL declares it: 5MiB, or octets")
    verb.add_argument("--message", type=Path, metavar="FILE", help="the content, for rules on its header")
    verb.add_argument("--tls", nargs="?", const="1.3", choices=("1.2", "1.3"), help="under TLS of this version (1.3)")
    verb.add_argument("--listener", metavar="ID", help="the server it connects to, one of servers[].id (the first)")
    verb.add_argument(
        "--at",
        type=_time,
        metavar="TIME",
        help="at this time, such as 2026-07-01T12:00+02:00 (default: now); UTC without a zone",
    )
    verb.add_argument("--check", action="store_true", help="have rspamd check the message, which may learn from it")
    verb.add_argument("--json", action="store_true", help="one JSON object")
    verb.set_defaults(func=test)


def check(options: argparse.Namespace) -> int:
    """Read everything the policy needs and say what there is."""
    config = load_smtpd(options.config / "smtpd.yaml")
    load_policy(config)
    if (path := options.config / "queued.yaml").exists():
        check_policy(options.config, config, load_queued(path))
    policy = config.policy
    file = str(options.config / "smtpd.yaml")
    found = {"rules": len(policy.rules), "holds": len(policy.holds), "lists": len(policy.lists)}
    counted = ", ".join(how_many(number, name.removesuffix("s")) for name, number in found.items())
    return records.tell(f"{file}: can be used: {counted}", {"file": file, **found}, as_json=options.json)


def test(options: argparse.Namespace) -> int:
    """Say what would happen; 1 when anything is refused."""
    config = load_smtpd(options.config / "smtpd.yaml")
    outcome, notes = asyncio.run(_attempt(config, options))
    if options.json:
        records.one(_as_json(outcome, notes))
    else:
        show(outcome, notes)
    return 0 if outcome.accepted else 1


async def _attempt(config: SmtpdConfig, options: argparse.Namespace) -> tuple[Trial, list[str]]:
    """The outcome, and what has to be said about how it was found."""
    known = [server.id for server in config.servers]
    listener = options.listener or known[0]
    if listener not in known:
        raise PillarboxError(f"--listener {listener}: the server does not exist; allowed: {', '.join(known)}")
    notes = _notes(config, options)
    environment = config.environment
    conninfo = database.resolve_running(environment.database.uri, environment.var)
    queries = ListQueries(conninfo) if conninfo is not None else None
    try:
        asked = TriedMail(
            client=options.client,
            listener=listener,
            sender=options.sender,
            recipients=options.recipients,
            clientname=options.clientname,
            helo=options.helo,
            user=None if options.user is None else await _user(config, conninfo, options.user, notes),
            tls=None if options.tls is None else f"TLSv{options.tls}",
            size=options.size,
            content=None if options.message is None else _content(options.message),
        )
        now = None if options.at is None else lambda: options.at
        return await attempt(config, asked, ask=queries, check=options.check, now=now), notes
    finally:
        if queries is not None:
            await queries.close()


def _notes(config: SmtpdConfig, options: argparse.Namespace) -> list[str]:
    """Where this answer may differ from what smtpd would do."""
    notes = []
    names = {name for _, entry in config.policy.entries() for _, name in entry.condition.asked()}
    if any(c.rate for _, entry in config.policy.entries() for _, c in entry.condition.walk()):
        notes.append("rates are taken as not over: nothing is counted here")
    if options.message is None and "header" in names:
        notes.append("without --message no header field matches")
    if config.policy.contentcheck is not None and not (options.check and options.message):
        notes.append("content is taken as unchecked: give --message and --check to ask rspamd")
    return notes


async def _user(config: SmtpdConfig, conninfo: str | None, name: str, notes: list[str]) -> User:
    """The user with all settings, where they can be found."""
    settings = config.authentication
    sources: list[Any] = [WrittenUsers(settings.users)]
    table = None
    if settings.file is not None:
        file = FileUsers(settings.file)
        file.prepare()
        sources.append(file)
    if settings.source == "table" and conninfo is not None:
        table = TableUsers(conninfo)
        sources.append(table)
    try:
        found = await Several(sources).find(name)
    except UsersUnavailable:
        found = None
    finally:
        if table is not None:
            await table.close()
    if found is None:
        notes.append(f"user {name} is not in this configuration: taken as a user without settings")
    return found or User(name)


def show(outcome: Trial, notes: list[str]) -> None:
    """The rules asked, phase by phase, then what becomes of each recipient."""
    rows: list[tuple[object, ...]] = []
    for report in outcome.phases:
        phase = report.phase if report.recipient is None else f"{report.phase} {report.recipient}"
        rows += [(phase, step.rule, step.matched, step.did, step.because) for step in report.trail]
        if not report.trail:
            rows.append((phase, None, None, None, "no rules"))
    Table(_STEPS).print(rows)
    for line in [*_lines(outcome), *(f"note: {note}" for note in notes)]:
        print(printable(line))


def _lines(outcome: Trial) -> list[str]:
    """The result of each recipient, a line each."""
    lines = [f"{to}: refused: {reply}" for to, reply in outcome.rejected.items()]
    if outcome.refused is not None:
        lines.append(f"refused: {outcome.refused}")
    for row in outcome.rows:
        words = [f"{row.address}: {row.status.value} partition {row.partid} transport {row.transportid}"]
        words += [] if row.priority is None else [f"priority {row.priority}"]
        words += [f"{key}={value!r}" for key, value in row.metadata.items()]
        lines.append(" ".join(words))
    lines += [f"adds: {line}" for line in outcome.headers.decode().splitlines()]
    if delay := sum(report.delay for report in outcome.phases):
        lines.append(f"delayed: {delay:g} s in all")
    return lines


def _as_json(outcome: Trial, notes: list[str]) -> dict[str, object]:
    return {
        "accepted": outcome.accepted,
        "refused": outcome.refused,
        "phases": [
            {
                "phase": report.phase,
                "recipient": report.recipient,
                "rule": report.rule,
                "reply": report.reply,
                "delay": report.delay,
                "trail": [
                    {"rule": step.rule, "matched": step.matched, "because": step.because, "does": step.did}
                    for step in report.trail
                ],
            }
            for report in outcome.phases
        ],
        "rejected": outcome.rejected,
        "recipients": [
            {
                "recipient": str(row.address),
                "status": row.status.value,
                "partition": row.partid,
                "transport": row.transportid,
                "priority": row.priority,
                "metadata": row.metadata,
            }
            for row in outcome.rows
        ],
        "headers": outcome.headers.decode().splitlines(),
        "notes": notes,
    }


def _client(text: str) -> str:
    try:
        return str(ip_address(text))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{masking.show(text)} is not an IP address; allowed: 192.0.2.1, 2001:db8::1"
        ) from None


def _address(text: str) -> Address:
    try:
        return address.parse(text)
    except address.AddressRefused as reason:
        raise argparse.ArgumentTypeError(f"{masking.show(text)} is not an address: {reason}") from None


def _sender(text: str) -> Address | None:
    return None if text in {"", "<>"} else _address(text)


def _time(text: str) -> datetime:
    try:
        named = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{masking.show(text)} is not a time such as 2026-07-01T12:00+02:00") from None
    return named if named.tzinfo is not None else named.replace(tzinfo=UTC)


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _content(file: Path) -> bytes:
    """A message as SMTP would carry it: lines of a file end as the system has them."""
    try:
        return b"\r\n".join(file.read_bytes().replace(b"\r\n", b"\n").split(b"\n"))
    except OSError as error:
        raise _NoInput(f"--message {file}: {error.strerror}") from None
