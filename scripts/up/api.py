"""api — whether `pillarbox up` runs httpd: where httpd.yaml is in the folder, and its packages are installed

Raises: ConfigError for a file that cannot be used, or that names another database than smtpd.yaml.
"""

from __future__ import annotations

from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from operate import sign_in
from shared.config.httpd.load import load_httpd
from shared.errors import ConfigError
from shared.postgres import database

if TYPE_CHECKING:
    from pathlib import Path

    from shared.config.smtpd.settings import SmtpdConfig


_KEEP: Final = timedelta(days=1)


def why_not(folder: Path, smtpd: SmtpdConfig) -> str | None:
    """Why it does not run; None: it does."""
    file = folder / "httpd.yaml"
    if not file.exists():
        return f"{file} is missing"
    ours, theirs = load_httpd(file).environment, smtpd.environment
    if (ours.database.uri, ours.var) != (theirs.database.uri, theirs.var):
        raise ConfigError(f"{folder}: smtpd.yaml and httpd.yaml name different databases; both must name the same")
    if any(find_spec(name) is None for name in ("fastapi", "uvicorn", "httptools", "nh3")):
        return "its packages are missing; allowed: pip install 'pillarbox[web]'"
    return None


async def console(folder: Path, address: tuple[str, int], conninfo: str, *, link: bool) -> list[str]:
    """Where the console is; with `link` a one-time link as long as no admin can sign in: not where logs keep it."""
    config = load_httpd(folder / "httpd.yaml")
    if not config.console.enabled:
        return []
    place = f"{'https' if config.tls else 'http'}://{_host(address[0])}:{address[1]}"
    if not link:
        return [f"the console: {place}/console/ (`pillarbox web setup` makes a one-time link)"]
    connection = await database.connect(conninfo, "pillarbox up")
    try:
        made = await sign_in.first_link(connection, _KEEP, place)
    except database.REFUSAL as error:
        if database.is_outage(error):
            raise
        made = None  # this login makes no principals
    finally:
        await connection.close()
    if made is None:
        return [f"the console: {place}/console/"]
    return [f"the console: choose a password for {made.principal} here, once:", f"  {made.url}"]


def _host(host: str) -> str:
    return "127.0.0.1" if host in {"0.0.0.0", "[::]"} else host  # noqa: S104 - as it listens


def first_steps(address: tuple[str, int]) -> list[str]:
    """How to send a mail by HTTP, and to see what became of it."""
    host, port = address
    place = f"http://{_host(host)}:{port}/v1"
    shown = '-H "Authorization: Bearer $KEY"'
    mail = '{"from": "me@example.com", "to": "you@example.net", "subject": "Hello", "text": "Hello"}'
    return [
        f"send by HTTP ({place}/docs) with a key:",
        "  pillarbox principal add me --kind application; KEY=$(pillarbox key add me)",
        f"  curl -sS {place}/messages {shown} -H 'Content-Type: application/json' -d '{mail}'",
        f"  curl -sS {place}/messages/ID {shown}",
    ]
