"""api — whether `pillarbox up` runs httpd: where httpd.yaml is in the folder, and its packages are installed

Raises: ConfigError for a file that cannot be used, or that names another database than smtpd.yaml.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from shared.config.httpd.load import load_httpd
from shared.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from shared.config.smtpd.settings import SmtpdConfig


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


def first_steps(address: tuple[str, int]) -> list[str]:
    """How to send a mail by HTTP, and to see what became of it."""
    host, port = address
    place = f"http://{'127.0.0.1' if host in {'0.0.0.0', '[::]'} else host}:{port}/v1"  # noqa: S104 - as it listens
    shown = '-H "Authorization: Bearer $KEY"'
    mail = '{"from": "me@example.com", "to": "you@example.net", "subject": "Hello", "text": "Hello"}'
    return [
        f"send by HTTP ({place}/docs) with a key:",
        "  pillarbox principal add me --kind application; KEY=$(pillarbox key add me)",
        f"  curl -sS {place}/messages {shown} -H 'Content-Type: application/json' -d '{mail}'",
        f"  curl -sS {place}/messages/ID {shown}",
    ]
