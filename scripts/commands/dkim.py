"""dkim — `pillarbox dkim`: makes keys for signatures, and checks that DNS has them

Owns: generate and check.
Guarantees: a private key is written to a new file, and printed nowhere. Its owner alone can read it, or, if root makes
    it, those who can use its folder (scripts/rights.py). A file that is there already stays as it is. `check` changes
    nothing; its status is 1 when DNS lacks a key or has another one.
Raises: PillarboxError for errors that an operator can correct.
See: docs/how-to/deliver/sign-with-dkim.md; RFC 6376 section 3.6.1 (the record)
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from queued.routing.resolver import Resolver
from queued.signing.keys import UnusableKey, new_key, read_key, zone_line
from queued.signing.records import difference, published_keys
from scripts import rights
from scripts.options import finish
from scripts.output import records
from shared.config.queued.load import load_queued
from shared.config.queued.signing import read_domain, read_selector
from shared.errors import PillarboxError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from shared.config.queued.settings import QueuedConfig


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `dkim` and its verbs to the command line."""
    parser = subparsers.add_parser("dkim", help="keys for DKIM signatures")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    verb = verbs.add_parser("generate", help="make a key and print its DNS record")
    verb.add_argument("--domain", required=True, help="that will sign, such as example.com")
    verb.add_argument("--selector", required=True, help="the key's name in DNS, such as s2026")
    verb.add_argument("--ed25519", action="store_true", help="an Ed25519 key (RSA of 2048 bits)")
    verb.add_argument(
        "--out", type=Path, default=Path(), metavar="DIR", help="for the private key; made if it is missing (.)"
    )
    verb.add_argument("--json", action="store_true", help="JSON for programs")
    verb.set_defaults(func=generate)
    verb = verbs.add_parser("check", help="compare the keys of queued.yaml with DNS")
    finish(verb, check)


def generate(options: argparse.Namespace) -> int:
    """Write a new private key, and print the record that publishes the public one."""
    domain = _read("--domain", read_domain, options.domain)
    selector = _read("--selector", read_selector, options.selector)
    key = new_key(ed25519=options.ed25519)
    file = options.out / f"{domain}.{selector}.pem"
    with suppress(OSError):  # opening the file below says what is wrong
        rights.make_folder(options.out)
    try:
        rights.write_new(file, key.pem(), rights.like(options.out))
    except FileExistsError:
        raise PillarboxError(f"{file} is there already; allowed: another --selector or --out") from None
    except OSError as error:
        raise PillarboxError(f"{file} cannot be written: {error.strerror}") from None
    if options.json:
        records.one({"name": f"{selector}._domainkey.{domain}", "record": key.record(), "file": str(file)})
        return 0
    print(f"; private key in {file}; publish this, then name selector and file in signing.rules of queued.yaml")
    print(zone_line(selector, domain, key.record()))
    return 0


def check(options: argparse.Namespace) -> int:
    """One line for each key and domain: whether DNS has what verifiers need."""
    queued = load_queued(options.config / "queued.yaml")
    faults = asyncio.run(_compared(queued))
    for name, fault in faults:
        records.tell(f"{name}: {fault or 'ok'}", {"name": name, "fault": fault}, as_json=options.json)
    if not queued.signing.rules and not options.json:
        print("signing.rules of queued.yaml is empty: mail leaves unsigned")
    return 1 if any(fault for _, fault in faults) else 0


async def _compared(queued: QueuedConfig) -> list[tuple[str, str | None]]:
    """The name of each key in DNS, and its fault; None for one that is right."""
    keys = []
    for rule in queued.signing.rules:
        for key, domain in published_keys(rule):
            try:
                ours = read_key(key.file).record()
            except UnusableKey as error:
                raise PillarboxError(f"signing rule {rule.id}: {error}") from None
            keys.append((ours, key.selector, domain))
    resolver = Resolver(queued.routing.dns, patience=None)

    async def compare(ours: str, selector: str, domain: str) -> tuple[str, str | None]:
        found = await resolver.key(selector, domain)
        if found.state == "failed":
            fault: str | None = f"DNS does not answer: {found.text}"
        else:
            fault = difference(ours, found.records[0] if found.records else None)
        return f"{selector}._domainkey.{domain}", fault

    try:
        return await asyncio.gather(*(compare(*key) for key in keys))
    finally:
        await resolver.close()


def _read(option: str, read: Callable[[object], str], value: str) -> str:
    try:
        return read(value)
    except ValueError as error:
        raise PillarboxError(f"{option}: {error}") from None
