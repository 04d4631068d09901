"""web — `pillarbox web setup`: a one-time link by which a person chooses a password for the console

Owns: the command line of operate/sign_in.py; the address of the console, as httpd.yaml has it.
Guarantees: a link is printed once, alone on its line.
Raises: PillarboxError for errors that an operator can correct.
See: docs/how-to/review/review-in-a-browser.md.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from operate import sign_in
from operate.queue.query import to_the_second
from scripts import one_connection
from scripts.access.user import new_name
from scripts.options import duration, finish
from scripts.output import records
from shared.config.httpd.load import load_httpd
from shared.errors import PillarboxError
from shared.masking import show
from shared.url import parts_of

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

_KEEP: Final = timedelta(days=1)
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - an address to open, not to listen on


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `web` and its verb to the command line."""
    parser = subparsers.add_parser("web", help="let people sign in to the console")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    verb = verbs.add_parser("setup", help="print a one-time link by which a person chooses a password")
    verb.add_argument(
        "name",
        nargs="?",
        default="admin",
        metavar="NAME",
        help="a principal that is a person; added as an admin if there is no admin yet (admin)",
    )
    verb.add_argument("--expires", type=duration, default=_KEEP, metavar="SPAN", help="for how long, such as 2h (1d)")
    verb.add_argument("--url", metavar="URL", help="where people reach httpd, such as https://mail.example.com")
    finish(verb, setup, acting=True)


def setup(options: argparse.Namespace) -> int:
    """Make a link."""
    url = _checked(options.url) if options.url else _configured(options.config)
    person = new_name(options)
    made = one_connection.ask(
        one_connection.configured(options),
        "pillarbox web",
        lambda on: sign_in.link(on, person, options.expires, url),
    )
    who = f"{made.principal} is added, as the first admin. " if made.made_admin else ""
    words = f"{who}{made.principal} chooses a password here, once, until {to_the_second(made.expires)}:\n{made.url}"
    return records.tell(words, made.model_dump(mode="json"), as_json=options.json)


def _checked(url: str) -> str:
    parts = parts_of(url)
    if parts is None or parts.scheme not in {"http", "https"} or parts.query or parts.fragment:
        raise PillarboxError(
            f"--url: {show(url)} is not the address of httpd; allowed: http or https, a host, a port, a path"
        )
    return url.rstrip("/")


def _configured(folder: Path) -> str:
    """The address that httpd.yaml listens on."""
    file = folder / "httpd.yaml"
    if not file.exists():
        raise PillarboxError(f"{file} is missing; give --url, where people reach httpd")
    config = load_httpd(file)
    host = _EVERYWHERE.get(config.listen.host, config.listen.host)
    place = f"[{host}]" if ":" in host else host
    return f"{'https' if config.tls else 'http'}://{place}:{config.listen.port}"
