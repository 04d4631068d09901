"""command — `pillarbox sendmail`: what cron, mail(1), PHP and git send-email call as /usr/sbin/sendmail

Owns: the order of the steps, the exit statuses of sysexits.h, and the way of stdin and stdout to smtpd (-bs).
Guarantees: status 0 means that smtpd has answered 250, or that the message is in the spool, on the disk. With any other
    status nothing was kept, and the caller still has the message. Sent twice is only what was in doubt: a process was
    killed, or a connection broke, between the final dot and what follows its reply.
See: sysexits.h; scripts/sendmail/submit.py and spool.py; docs/how-to/send/send-from-cron-and-scripts.md.
"""

from __future__ import annotations

import getpass
import os
import selectors
import socket
import sys
import uuid
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path
from typing import TYPE_CHECKING, Final

from scripts.sendmail import spool
from scripts.sendmail.arguments import Asked, NotUsable, parse
from scripts.sendmail.message import Defaults, NotAMessage, Outgoing, compose, read
from scripts.sendmail.submit import Accepted, Away, Refused, submit
from shared import masking
from shared.errors import cause
from shared.whole_number import whole_number

if TYPE_CHECKING:
    import argparse

OK, USAGE, DATA, NO_USER, UNAVAILABLE, OS_ERROR, TEMPORARY, NO_RIGHT = 0, 64, 65, 67, 69, 71, 75, 77
_LAST_PORT: Final = 65535
_SERVER: Final = "127.0.0.1:25"
_SPOOL: Final = "/var/spool/pillarbox"
_MAILNAME: Final = Path("/etc/mailname")  # Debian's name of this host in addresses
_AUTHENTICATION: Final = {530, 535, 538, 554}
_HELP: Final = """usage: pillarbox sendmail [--server HOST:PORT] [--spool DIR] [--domain NAME] [OPTION|RECIPIENT ...]
       pillarbox sendmail --flush
submits the message on standard input; options are those of sendmail(1): -t, -i, -f ADDRESS, -F NAME, -bp, -bs, ...
"""
_OCTETS: Final = 65536


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `sendmail` to the command line; its own words are read by scripts/sendmail/arguments.py."""
    parser = subparsers.add_parser(
        "sendmail",
        help="submit a message from standard input, with the options of sendmail(1)",
        prefix_chars="\0",
        add_help=False,
    )
    parser.add_argument("words", nargs="*", metavar="OPTION|RECIPIENT", help="as of sendmail(1): -t, -i, -f, -F, …")
    parser.set_defaults(func=run)


def run(options: argparse.Namespace) -> int:
    """Do what the words ask for; the exit status."""
    try:
        asked = parse(options.words)
        host, port = _server(asked.server or os.environ.get("PILLARBOX_SENDMAIL_SERVER") or _SERVER)
    except NotUsable as error:
        return _fail(USAGE, str(error))
    folder = Path(asked.spool or os.environ.get("PILLARBOX_SENDMAIL_SPOOL") or _SPOOL)
    if asked.mode in {"help", "nothing"}:
        sys.stdout.write(_HELP if asked.mode == "help" else "")
        return OK
    actions = {
        "list": lambda: show(folder),
        "flush": lambda: flush(folder, host, port),
        "smtp": lambda: bridge(host, port),
        "send": lambda: send(asked, folder, host, port),
    }
    return actions[asked.mode]()


def send(asked: Asked, folder: Path, host: str, port: int) -> int:
    """Submit one message, or keep it where smtpd is away."""
    try:
        message = _message(asked)
    except NotAMessage as error:
        return _fail(DATA, str(error))
    outcome = submit(host, port, _own_name(), message)
    if isinstance(outcome, Accepted):
        return OK
    if isinstance(outcome, Refused):
        return _fail(_status(outcome), outcome.reply)
    left = outcome.left or message
    try:
        spool.keep(folder, left)
    except OSError as error:
        had = f"smtpd has it for all but {', '.join(left.recipients)}" if outcome.left else "nothing was kept"
        return _fail(
            TEMPORARY,
            f"{host}:{port}: {outcome.why}; and the spool {folder}: {cause(error)}; {had}; "
            "--server says where smtpd listens",
        )
    return OK


def flush(folder: Path, host: str, port: int) -> int:
    """Submit what the spool has; where smtpd is not there, the rest waits too."""
    status = OK
    try:
        paths = [path for path in spool.waiting(folder) if path.name.startswith("message.")]
    except OSError as error:
        return _fail(OS_ERROR, f"{folder}: {cause(error)}")
    for path in paths:
        try:
            with spool.taken(path) as kept:
                outcome = submit(host, port, _own_name(), kept.message) if kept else None
                if isinstance(outcome, Accepted):
                    spool.remove(path)
                elif isinstance(outcome, Refused):
                    spool.refuse(path)
                    status = _fail(UNAVAILABLE, f"{path.name}: refused, and kept: {outcome.reply}")
                elif isinstance(outcome, Away):
                    name = path.name
                    if outcome.left is not None:
                        name = spool.keep(folder, outcome.left).name
                        spool.remove(path)
                    status = max(status, _fail(TEMPORARY, f"{name}: {host}:{port}: {outcome.why}; it is kept"))
                    if outcome.all:
                        break
        except FileNotFoundError:
            continue  # sent by another process
        except OSError as error:
            status = _fail(OS_ERROR, f"{path}: {cause(error)}")
    return status


def show(folder: Path) -> int:
    """List the spool, as far as this user may."""
    from scripts.terminal import printable  # noqa: PLC0415 - it loads rich, and mail is submitted without

    try:
        paths = spool.waiting(folder)
    except FileNotFoundError:
        paths = []
    except OSError as error:
        return _fail(NO_RIGHT, f"{folder}: {cause(error)}")
    for path in paths:
        try:
            with spool.taken(path) as kept:
                if kept is not None:
                    to = printable(f"<{kept.message.sender}> to {', '.join(kept.message.recipients)}")
                    print(f"{path.name}  {formatdate(kept.since)}  {to}")
        except FileNotFoundError:
            continue  # sent by another process
        except OSError as error:
            print(f"{path.name}  {cause(error)}")
    print(f"{len(paths)} in {folder}; what smtpd has accepted: pillarbox queue list")
    return OK


def bridge(host: str, port: int) -> int:
    """SMTP on standard input and output: octets go to smtpd and back."""
    try:
        peer = socket.create_connection((host, port), 10)
    except OSError as error:
        print(f"421 4.3.2 {host}:{port}: {cause(error)}", end="\r\n")
        return TEMPORARY
    peer.settimeout(None)
    try:
        return _passed(peer)
    except OSError as error:
        return _fail(TEMPORARY, f"{host}:{port}: {cause(error)}")


def _passed(peer: socket.socket) -> int:
    """Pass octets both ways until smtpd closes the connection."""
    with peer, selectors.DefaultSelector() as ready:
        ready.register(peer, selectors.EVENT_READ)
        ready.register(sys.stdin.fileno(), selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fileobj is peer:
                    octets = peer.recv(_OCTETS)
                    if not octets:
                        return OK
                    sys.stdout.buffer.write(octets)
                    sys.stdout.buffer.flush()
                elif octets := os.read(sys.stdin.fileno(), _OCTETS):
                    peer.sendall(octets)
                else:
                    ready.unregister(sys.stdin.fileno())
                    peer.shutdown(socket.SHUT_WR)


def _message(asked: Asked) -> Outgoing:
    """What standard input says, as the message to submit."""
    domain = asked.domain or _domain()
    defaults = Defaults(
        user=_user(),
        domain=domain,
        date=formatdate(localtime=True),
        message_id=f"<{uuid.uuid4()}@{domain}>",
        full_name=asked.full_name,
    )
    octets = read(sys.stdin.buffer.read(), dot=asked.dot)
    message = compose(octets, asked.recipients, asked.sender, defaults, from_header=asked.from_header)
    return replace(message, notify=asked.notify, returned=asked.returned, envid=asked.envid)


def _server(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    number = whole_number(port)
    if not host or number is None or not 0 < number <= _LAST_PORT:
        raise NotUsable(f"{masking.show(text)} is not a server; allowed: HOST:PORT")
    return host.strip("[]"), number


def _status(outcome: Refused) -> int:
    """The status of sysexits.h for a refusal."""
    if outcome.recipient:
        return NO_USER
    return NO_RIGHT if outcome.code in _AUTHENTICATION else UNAVAILABLE


def _domain() -> str:
    try:
        named = _MAILNAME.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        named = ""
    return named or socket.getfqdn()


def _own_name() -> str:
    return socket.getfqdn()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid{os.getuid()}"


def _fail(status: int, why: str) -> int:
    sys.stderr.write(f"sendmail: {why}\n")
    return status
