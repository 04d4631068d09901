"""command — `pillarbox init`: writes the configuration of a host, with keys, certificate and an administrator

Owns: the files of a new folder; the first migration of the database they name, and its first principal.
Guarantees: writes into a folder that is missing or empty, and leaves it as it was when anything is refused. What it
    wrote is read as the daemons read it. Private keys and passwords are readable by their owner only. Where PostgreSQL
    does not answer, the files stay, one line says which commands are left to do, and the exit status is 69.
Raises: PillarboxError, ConfigError.
See: docs/how-to/start/set-up-a-host.md.
"""

from __future__ import annotations

import getpass
import os
import shlex
import shutil
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from queued.signing.keys import new_key, zone_line
from scripts import shipped
from scripts.access.principal_store import PrincipalEntry, PrincipalStore
from scripts.commands import relay, up
from scripts.config_files import load_both
from scripts.init import answers, certificate, zone
from scripts.output import records
from scripts.rights import write_new
from shared.config.queued.signing import read_selector
from shared.config.yaml_edit import set_value
from shared.errors import DatabaseUnavailable, PillarboxError
from shared.postgres import database
from shared.postgres.embedded import embedded

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping

    from scripts.init.answers import Answers
    from shared.config.smtpd.settings import SmtpdConfig

_DAEMONS: Final = ("smtpd", "queued", "httpd", "collect")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `init` to the command line."""
    parser = subparsers.add_parser("init", help="write the configuration of a new host into a folder")
    parser.add_argument("folder", type=Path, metavar="DIR", help="missing or empty, such as /etc/pillarbox")
    parser.add_argument("--hostname", metavar="NAME", help="fully qualified, as other hosts know this one")
    parser.add_argument(
        "--listen", type=relay.read_host, metavar="ADDRESS[:PORT]", help="where smtpd accepts mail (127.0.0.1:2525)"
    )
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--relay", type=relay.read_host, metavar="HOST[:PORT]", help="a smart host takes all mail")
    way.add_argument("--direct", action="store_true", help="mail goes straight to the recipients' hosts (MX)")
    parser.add_argument(
        "--user", metavar="NAME", help="log in to the smart host; asks for the password, or reads a pipe"
    )
    parser.add_argument(
        "--domain", action="append", default=[], metavar="NAME", help="whose mail is signed; may be given again"
    )
    parser.add_argument("--selector", default="pillarbox", metavar="NAME", help="of the DKIM keys (%(default)s)")
    parser.add_argument("--database", metavar="URI", help="PostgreSQL 15 or newer (an embedded one below DIR)")
    parser.add_argument("--var", type=Path, metavar="DIR", help="for the embedded server and run-time files (DIR/var)")
    parser.add_argument(
        "--admin", metavar="NAME", default=None, help="the first administrator (the user who runs this)"
    )
    parser.add_argument("--yes", action="store_true", help="ask nothing")
    parser.add_argument("--json", action="store_true", help="JSON for programs")
    parser.set_defaults(func=run)


def run(options: argparse.Namespace) -> int:
    """Write the folder, then prepare the database."""
    folder: Path = options.folder.resolve()
    made = not folder.exists()
    if not made and (not folder.is_dir() or any(folder.iterdir())):
        raise PillarboxError(f"{folder} is not an empty folder; allowed: a new or empty one")
    try:
        selector = read_selector(options.selector)
    except ValueError as error:
        raise PillarboxError(f"--selector: {error}") from None
    answer = answers.gather(options, socket.getfqdn())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        published = _write(folder, answer, selector, options)
        smtpd, _ = load_both(folder)
        admin = options.admin or getpass.getuser()
        fault = _prepare(smtpd, admin)
    except BaseException as error:
        _clear(folder, made=made)
        if isinstance(error, OSError):
            raise PillarboxError(f"{error.filename}: {error.strerror}; nothing was written") from None
        raise
    _print(options, folder, answer, published, None if fault else admin, fault)
    if fault:
        there = _there(folder)
        add = f"pillarbox principal add {shlex.quote(admin)} --role admin --role sender {there}"
        rest = f"pillarbox migrate {there} && {add}"
        left = f"the files are there; once PostgreSQL answers, as an account that it accepts, type: {rest}"
        sys.stderr.write(f"pillarbox: {fault}\npillarbox: {left}\n")
    return os.EX_UNAVAILABLE if fault else os.EX_OK


def _clear(folder: Path, *, made: bool) -> None:
    """Take back what was written."""
    with suppress(OSError):
        if made:
            shutil.rmtree(folder)
        else:
            for each in folder.iterdir():
                shutil.rmtree(each) if each.is_dir() else each.unlink()


def _write(folder: Path, answer: Answers, selector: str, options: argparse.Namespace) -> list[str]:
    """The files; the DNS records to publish."""
    uri, var = options.database, (options.var or folder / "var").resolve()
    pair = certificate.self_signed(answer.hostname)
    tls = folder / "tls"
    tls.mkdir()
    (tls / "certificate.pem").write_bytes(pair.certificate)
    write_new(tls / "privatekey.pem", pair.privatekey)
    public, rules = _keys(folder, answer.domains, selector)
    own = {"environment.var": relay.quoted(str(var))}
    if uri:
        own["environment.database.uri"] = relay.quoted(uri)
    host = relay.quoted(answer.hostname)
    files = [relay.quoted(str(tls / f"{name}.pem")) for name in ("certificate", "privatekey")]
    tls_pair = "{{certificate: {}, privatekey: {}}}".format(*files)
    accepts = {"servers.default.hostname": host, "servers.default.tls": tls_pair}
    if options.listen is not None:
        address, port = options.listen
        accepts["servers.default.listeners"] = f"[{{address: {relay.quoted(address)}, port: {port or 25}}}]"
    _configure(folder, "smtpd", own | accepts)
    sends = {"transports.default.hostname": host, "bounces.hostname": host, "signing.rules": f"[{', '.join(rules)}]"}
    if answer.relay is None:
        sends["transports.default.connection.mode"] = "mx"
    _configure(folder, "queued", own | sends)
    for daemon in ("httpd", "collect"):
        _configure(folder, daemon, own)
    if answer.relay is not None:
        relay.name_host(folder, "default", answer.relay, answer.user)
    lines = zone.lines(answer.hostname, answer.domains, public, direct=answer.relay is None)
    (folder / "dns.zone").write_text("".join(f"{line}\n" for line in lines), encoding="ascii")
    return lines


def _keys(folder: Path, domains: Iterable[str], selector: str) -> tuple[list[str], list[str]]:
    """A new key for each domain: the lines of DNS, and the rules of queued.yaml."""
    public, rules = [], []
    for domain in domains:
        key = new_key(ed25519=False)
        file = folder / "dkim" / f"{domain}.{selector}.pem"
        file.parent.mkdir(exist_ok=True)
        write_new(file, key.pem())
        public.append(zone_line(selector, domain, key.record()))
        name = relay.quoted(domain)
        of = f"selector: {relay.quoted(selector)}, file: {relay.quoted(str(file))}"
        rules.append(f"{{id: {name}, senderdomain: [{name}], domain: {name}, keys: [{{{of}}}]}}")
    return public, rules


def _configure(folder: Path, daemon: str, values: Mapping[str, str]) -> None:
    """The shipped file of this daemon with these values, and its JSON Schema beside it."""
    text = (shipped.folder("config") / f"{daemon}.yaml").read_text(encoding="utf-8")
    for path, value in values.items():
        text = set_value(text, path.split("."), value)
    (folder / f"{daemon}.yaml").write_text(text, encoding="utf-8")
    shutil.copyfile(shipped.folder("config") / f"{daemon}.schema.json", folder / f"{daemon}.schema.json")


def _prepare(smtpd: SmtpdConfig, admin: str) -> str | None:
    """Bring the database up to date and add the administrator; what is wrong where PostgreSQL does not answer."""
    settings, var = smtpd.environment.database, smtpd.environment.var
    starts = database.is_embedded(settings.uri) and database.resolve_running(settings.uri, var) is None
    try:
        entry = PrincipalEntry.model_validate({"kind": "person", "roles": ["admin", "sender"]})
        PrincipalStore(up.prepare(smtpd)).add(admin, entry)  # a database that has the principal keeps it
    except DatabaseUnavailable as error:
        return str(error)
    finally:
        if starts:
            embedded.stop(var)
    return None


def _there(folder: Path) -> str:
    """The option that names this folder, as a shell takes it."""
    return f"--config {shlex.quote(str(folder))}"


def _print(
    options: argparse.Namespace,
    folder: Path,
    answer: Answers,
    published: list[str],
    admin: str | None,
    fault: str | None,
) -> None:
    var = folder / "var"
    files = [str(each) for each in sorted(folder.rglob("*")) if each.is_file() and var not in each.parents]
    if options.json:
        lines = [line for line in published if not line.startswith(";")]
        done = {"folder": str(folder), "hostname": answer.hostname, "files": files, "records": lines}
        records.one({**done, "admin": admin, "fault": fault})
        return
    print(f"{folder} has the configuration of {answer.hostname}:")
    for each in sorted(folder.iterdir()):
        print(f"  {each.name}{'/' if each.is_dir() else ''}")
    if len(published) > 1:
        print("\n" + "\n".join(published) + f"\n; the same lines are in {folder / 'dns.zone'}\n")
    there = _there(folder)
    if admin:
        print(f"{admin} has the roles admin and sender: pillarbox principal list {there}")
    print(f"next: pillarbox up {there}, and beside it: pillarbox doctor {there}")
