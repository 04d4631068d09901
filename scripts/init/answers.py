"""answers — what `pillarbox init` has to know about a host, given by options or asked for at a terminal

Guarantees: every answer is checked when it is given. Without a terminal nothing is asked: what has no default and no
    option is named in one line.
Raises: PillarboxError.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, NamedTuple

from scripts.commands.relay import Host, read_host
from shared.config.queued.signing import read_domain
from shared.errors import PillarboxError
from shared.host_name import is_qualified
from shared.masking import show

if TYPE_CHECKING:
    from collections.abc import Callable


class Answers(NamedTuple):
    """What decides the configuration."""

    hostname: str
    relay: Host | None  # None: straight to the recipients' hosts
    user: str | None  # at the relay
    domains: tuple[str, ...]  # whose mail is signed


def read_hostname(text: str) -> str:
    """A host's name, as other hosts know it."""
    if not is_qualified(text):
        raise ValueError(f"{show(text)} is not a fully qualified host name; allowed: a name such as mail.example.com")
    return text.lower()


def gather(options: argparse.Namespace, known: str) -> Answers:
    """From the options, and from the person for what they leave out; `known`: the host's name in the system."""
    asks = sys.stdin.isatty() and not options.yes
    hostname = options.hostname and _checked("--hostname", read_hostname, options.hostname)
    default = known if is_qualified(known) else ""
    if not hostname and asks:
        hostname = _asked("host name, as other hosts know it", default, read_hostname)
    if not hostname and not default:
        raise PillarboxError(f"--hostname is required: the system's own name {show(known)} is not fully qualified")
    relay = _relay(options, asks=asks)
    user: str | None = options.user
    if relay is not None and user is None and asks:
        user = _asked(f"user at {relay.name} (empty: no login)", "", str) or None
    if user and relay is None:
        raise PillarboxError("--user requires --relay: only a smart host asks for a login")
    domains = tuple(_checked("--domain", read_domain, each) for each in options.domain)
    if not domains and asks:
        domains = _asked("domains to sign mail for by DKIM, separated by spaces (empty: none)", "", _domains)
    return Answers(hostname or default, relay, user, tuple(dict.fromkeys(domains)))


def _relay(options: argparse.Namespace, *, asks: bool) -> Host | None:
    if options.relay or options.direct:
        named: Host | None = options.relay
        return named
    if not asks:
        raise PillarboxError("--relay HOST or --direct is required: where mail goes has no default")
    return _asked(
        "smart host that takes all mail, HOST or HOST:PORT (empty: straight to the recipients' hosts)", "", _host
    )


def _host(text: str) -> Host | None:
    return read_host(text) if text else None


def _domains(text: str) -> tuple[str, ...]:
    return tuple(read_domain(each) for each in text.replace(",", " ").split())


def _checked[T](option: str, read: Callable[[str], T], text: str) -> T:
    try:
        return read(text)
    except ValueError as error:
        raise PillarboxError(f"{option}: {error}") from None


def _asked[T](question: str, default: str, read: Callable[[str], T]) -> T:
    """The answer at the terminal; asked again while it cannot be used."""
    while True:
        sys.stderr.write(f"{question}{f' [{default}]' if default else ''}: ")
        sys.stderr.flush()
        typed = sys.stdin.readline()
        if not typed:  # Ctrl-D
            sys.stderr.write("\n")
            raise PillarboxError("init: nothing was written")
        try:
            return read(typed.strip() or default)
        except (ValueError, argparse.ArgumentTypeError) as error:
            sys.stderr.write(f"pillarbox: {error}\n")
