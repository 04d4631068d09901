"""relay — `pillarbox relay`: names the smart host that takes our mail, with the login it asks for

Owns: the change of queued.yaml, and the file with the password beside it.
Guarantees: the password is asked for, or read from a pipe, and is never an argument. A new file with it is for the same
    owner and group as queued.yaml, or for its owner only if others can read queued.yaml. The new queued.yaml is read as
    a worker reads it before it takes the place of the old one, whose comments, other keys, owner and rights it keeps. A
    refused change leaves both files as they were.
Raises: ConfigError, PillarboxError.
See: docs/how-to/deliver/log-in-to-a-relay.md.
"""

from __future__ import annotations

import argparse
import json
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from operate import transports
from scripts.access import password
from scripts.options import finish
from scripts.output import records
from scripts.replace_file import drafted, replace
from scripts.rights import PRIVATE
from scripts.up import only_one
from shared.config.queued.load import load_queued
from shared.config.yaml_edit import set_value
from shared.errors import ConfigError, PillarboxError
from shared.masking import show

if TYPE_CHECKING:
    from pathlib import Path

    from shared.config.queued.transport import Transport

_PLAIN, _SUBMISSION, _IMPLICIT_TLS = 25, 587, 465
_LAST: Final = 65535
_HOST: Final = re.compile(r"(?P<name>[^:@/\[\]\s]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>\d+))?")


class Host(NamedTuple):
    """A smart host: its name or address, and its port if one was given."""

    name: str
    port: int | None


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `relay` to the command line."""
    parser = subparsers.add_parser("relay", help="name the smart host that takes our mail")
    parser.add_argument("host", type=read_host, metavar="HOST[:PORT]", help="port: 25, with --user 587; 465 is TLS")
    parser.add_argument("--user", metavar="NAME", help="log in as; the password is asked for, or read from a pipe")
    parser.add_argument("--transport", default="default", metavar="ID", help="of queued.yaml (%(default)s)")
    finish(parser, run)


def read_host(text: str) -> Host:
    """A host as it is typed: `smtp.example.com`, `smtp.example.com:587` or `[2001:db8::25]:587`."""
    found = _HOST.fullmatch(text)
    port = int(found["port"]) if found and found["port"] else None
    if found is None or (port is not None and not 0 < port <= _LAST):
        raise argparse.ArgumentTypeError(f"{show(text)} is not a host; allowed: NAME, NAME:PORT, [IPV6] or [IPV6]:PORT")
    return Host(found["name"].strip("[]"), port)


def run(options: argparse.Namespace) -> int:
    """Change queued.yaml."""
    transports.check_option(options.config, [options.transport])
    done = name_host(options.config, options.transport, options.host, options.user)
    words = f"as {done['user']} (password in {done['password']})" if options.user else "without a login"
    var = load_queued(options.config / "queued.yaml").environment.var
    return records.tell(
        f"{done['file']}: transport {done['transport']} sends to {done['server']} port {done['port']} {words}\n"
        f"Workers that run use it after a reload: {_reload(var)}.",
        done,
        as_json=options.json,
    )


def name_host(folder: Path, transport_id: str, host: Host, user: str | None) -> dict[str, Any]:
    """Have this transport of the folder's queued.yaml send to this host; what was done, as settings.SmartHost."""
    file = folder / "queued.yaml"
    [transport] = [each for each in load_queued(file).transports if each.id == transport_id]
    if transport.connection.hosts or transport.connection.socket:
        raise PillarboxError(f"{file}: transport {transport.id} has hosts or a socket: name the host there")
    port = host.port or (_SUBMISSION if user else _PLAIN)
    name = "relay" if transport.id == "default" else f"relay-{transport.id}"
    secret = (folder / f"{name}.password").resolve()
    login = f"{{user: {quoted(user)}, password: {{file: {quoted(str(secret))}}}}}" if user else None
    typed = password.asked() if user else None
    text = file.read_text(encoding="utf-8")
    for path, value in _values(transport, host.name, port, login).items():
        text = set_value(text, ("transports", transport.id, *path.split(".")), value)
    _replace(file, text, secret, typed)
    done = {"file": str(file), "transport": transport.id, "server": host.name, "port": port}
    return {**done, "user": user, "password": str(secret) if user else None}


def _reload(var: Path) -> str:
    """How the workers of this configuration reload."""
    pid = only_one.pid_of(var)
    return "kill -HUP PID, or systemctl reload" if pid is None else f"kill -HUP {pid}, which is `pillarbox up`"


def _values(transport: Transport, host: str, port: int, login: str | None) -> dict[str, str]:
    """What changes in the transport, by the keys that lead there."""
    values = {"connection.server": quoted(host), "connection.port": str(port)}
    if transport.connection.mode != "smarthost":
        values["connection.mode"] = "smarthost"
    if (port == _IMPLICIT_TLS) != transport.tls.implicit:
        values["tls.implicit"] = json.dumps(port == _IMPLICIT_TLS)
    if login is not None or transport.connection.auth is not None:
        values["connection.auth"] = login or "null"
    return values


def _replace(file: Path, text: str, secret: Path, typed: str | None) -> None:
    """Write the password, then the file, if a worker can use it."""
    try:
        with drafted(file, text) as draft:
            load_queued(draft)
            if typed is not None:
                replace(secret, f"{typed}\n", mode=PRIVATE, like=file)
    except ConfigError as error:
        raise PillarboxError(f"{file} was not changed: {error}") from None
    except OSError as error:
        raise PillarboxError(f"{error.filename}: {error.strerror}; {file} was not changed") from None


def quoted(text: str) -> str:
    """A text as YAML on one line."""
    return text if re.fullmatch(r"[A-Za-z][\w./-]*|/[\w./-]+|\d+\.\d+\.\d+\.\d+", text) else json.dumps(text)
