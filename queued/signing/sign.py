"""sign — puts DKIM signatures, and an ARC seal, in front of an outgoing message

Owns: the rules and keys that sign a message, the fields DKIM-Signature, and the treatment of a message that they fail
    for; queued/signing/arc.py makes the seal itself.
Guarantees: the content is read and never changed. A message is signed once for all recipients in flight, and its body
    digested once for all its signatures. A message that cannot be signed waits, or leaves unsigned where
    `signing.onerror` says so: it is never bounced for that. Signatures are relaxed/relaxed, cover the whole body (no
    l=), and sign the fields of queued/signing/sign_content.py.
Raises: only ConfigError, from `Signer`, for a key that cannot be read.
See: RFC 6376; RFC 8463 (Ed25519); RFC 8301 (RSA-SHA256)
Bugs: a header that RFC 5322 does not allow, or that white space before a colon makes obsolete, is sent unsigned
    (sign.skipped), because dkimpy neither signs nor verifies it. Keys are read at start and at a reload; notbefore and
    notafter rotate them without either.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import dkim
from dkim.canonicalization import CanonicalizationPolicy

from queued.signing import arc
from queued.signing.keys import PrivateKey, UnusableKey, read_key
from queued.signing.sign_content import ascii_domain, author_domain, body_digest, covered, header_end
from queued.smtp.content import without_strays
from shared.errors import ConfigError
from shared.how_many import how_many
from shared.observe import events
from shared.outcome import outcome_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from queued.values import Body, Claimed
    from shared.config.queued.signing import Arc, Signing, SigningKey, SigningRule
    from shared.mail.message import Address
from queued.values import Signed

_RELAXED: Final = CanonicalizationPolicy.from_c_value(b"relaxed/relaxed")
_QUIET: Final = logging.getLogger("pillarbox.dkim")  # dkimpy has nothing to tell that an event does not say
_MOST_FIELDS: Final = 250  # signed ones; folding a longer list of them would take dkimpy long
# dkimpy copies a field for each of its lines: 10 MB of them, in content without an empty line, took it hours.
_MOST_OCTETS: Final = 1 << 21  # of a header
_MOST_COPIED: Final = 1 << 31  # octets of a header times its lines
_LONGEST_DOMAIN: Final = 64  # RFC 6376 section 3.5: d= cannot be folded, and dkimpy would
_MALFORMED: Final = (dkim.DKIMException, IndexError)  # IndexError: a continuation line comes first
_ALWAYS: Final = datetime.min.replace(tzinfo=UTC)
_FOR_EVER: Final = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Key:
    """A private key with its place in DNS and its time."""

    selector: str
    private: PrivateKey
    begins: datetime
    ends: datetime


class SigningFault(Exception):
    """A message that should be signed cannot be, for a reason that is ours."""


class Signer:
    """Signs as the configuration says; without rules it does nothing. It never changes, so that threads may use it."""

    def __init__(self, settings: Signing) -> None:
        """Read every key; ConfigError for the first that cannot be used."""
        self._settings = settings
        self._keys = {rule.id: _read(index, rule) for index, rule in enumerate(settings.rules)}
        self._arc = _read_arc(settings.arc) if settings.arc is not None else []
        self._numbers: dict[tuple[str, str], list[int]] = {}  # of the rules, by source and each pattern in senderdomain
        for number, rule in enumerate(settings.rules):
            for pattern in rule.senderdomain:
                self._numbers.setdefault((rule.source, pattern), []).append(number)

    async def sign(self, body: Body, first: Claimed) -> Signed:
        """The signatures of a message, made when the first of its recipients in flight asks for them."""
        if not self._keys and not self._arc:
            return Signed()
        if body.signing is None:
            body.signing = asyncio.ensure_future(self._sign(first, body.content))
        # The end of one attempt's lease must not end the signing for the others.
        return await outcome_of(body.signing)

    async def _sign(self, first: Claimed, content: bytes) -> Signed:
        asked = (first.message_id, content, first.sender, first.now())
        foreign = first.metadata.get("_foreignfrom") is True
        try:
            if len(content) < self._settings.thread:
                return self.signatures(*asked, foreign_from=foreign)
            return await asyncio.to_thread(self.signatures, *asked, foreign_from=foreign)
        except Exception as error:  # noqa: BLE001 - no error in signing may lose the mail
            reason = str(error) if isinstance(error, SigningFault) else repr(error)
            events.emit("sign.failed", id=first.message_id, error=reason, onerror=self._settings.onerror)
            return Signed() if self._settings.onerror == "unsigned" else Signed(fault=f"cannot be signed: {reason}")

    def signatures(
        self, message_id: UUID, content: bytes, sender: Address | None, now: datetime, *, foreign_from: bool = False
    ) -> Signed:
        """The signatures, made in this thread; SigningFault when a rule fits and none of its keys may sign.

        foreign_from: From names an address that the submitter may not send as, so its domain is not signed for.
        """
        content = without_strays(content)
        end = header_end(content)
        chosen = self._choose(content[:end], sender, now, foreign_from=foreign_from)
        seal = self._seal(content[:end], now)
        if not chosen and seal is None:
            return Signed()
        header = _header(content, end)
        try:
            message = _read_header(header)
        except _MALFORMED as error:
            return _skipped(message_id, chosen, seal, "the header is malformed" if str(error) else repr(error))
        names = covered(name.lower() for name, _ in message.headers)
        if len(names) > _MOST_FIELDS:
            return _skipped(message_id, chosen, seal, f"{how_many(len(names), 'field')} would have to be signed")
        digest = body_digest(content, end)
        signed = b"".join(_field(message, names, digest, domain, key, now) for domain, key in chosen)
        sealed = arc.fields(signed + header, digest, seal, int(now.timestamp())) if seal is not None else None
        return Signed((sealed or b"") + signed)

    def _seal(self, header: bytes, now: datetime) -> arc.Seal | None:
        """The sealer of a message; None without one. SigningFault where no key is valid now."""
        settings = self._settings.arc
        if settings is None or arc.RESULTS not in header.lower():
            return None
        keys = active_keys(self._arc, now)
        if not keys:
            raise SigningFault("signing.arc has no key for this time")
        return arc.Seal(settings.authservid, settings.domain, keys[0].selector, keys[0].private)

    def would_sign(
        self, content: bytes, sender: Address | None, now: datetime, *, foreign_from: bool = False
    ) -> tuple[list[str], str | None]:
        """The signatures that would be made, as `domain/selector algorithm`; without any, why."""
        if not self._keys:
            return [], "no signing rule"
        content = without_strays(content)
        try:
            chosen = self._choose(content[: header_end(content)], sender, now, foreign_from=foreign_from)
        except SigningFault as fault:
            return [], str(fault)
        named = [f"{domain}/{key.selector} {key.private.algorithm}" for domain, key in chosen]
        return named, None if named else "no signing rule fits"

    def would_seal(self, content: bytes, now: datetime) -> tuple[str | None, str | None]:
        """The seal that would be made, with its key and number; without one although `arc` is set, why."""
        if self._settings.arc is None:
            return None, None
        content = without_strays(content)
        header = _header(content, header_end(content))
        try:
            sealing = arc.read_sealing(_read_header(header).headers, self._settings.arc.authservid)
            if isinstance(sealing, str):
                return None, sealing
            seal = self._seal(header, now)
        except SigningFault as fault:
            return None, str(fault)
        except _MALFORMED:
            return None, "the header is malformed"
        assert seal is not None  # noqa: S101 - there are results to seal
        number, algorithm = len(sealing.chain.sets) + 1, seal.key.algorithm
        return f"{seal.domain}/{seal.selector} {algorithm}, number {number}, cv={sealing.status}", None

    def _choose(
        self, header: bytes, sender: Address | None, now: datetime, *, foreign_from: bool
    ) -> list[tuple[str, Key]]:
        """The domains and keys that sign, each key once, RSA first: some verifiers stop at an unknown algorithm."""
        domains = {
            "from": None if foreign_from else author_domain(header),
            "envelope": None if sender is None else ascii_domain(sender.domain),
        }
        chosen: dict[tuple[str, str], Key] = {}
        for rule in self._rules_for(domains):
            domain = _signing_domain(rule, domains)
            if domain is None:
                continue
            keys = active_keys(self._keys[rule.id], now)
            if not keys:
                raise SigningFault(f"signing rule {rule.id} has no key for this time")
            for key in keys:
                chosen.setdefault((domain, key.selector), key)
        found = [(domain, key) for (domain, _), key in chosen.items()]
        return sorted(found, key=lambda each: each[1].private.algorithm != "rsa-sha256")

    def _rules_for(self, domains: Mapping[str, str | None]) -> list[SigningRule]:
        """Those that fit, in their order."""
        numbers = {
            number
            for source, domain in domains.items()
            if domain is not None
            for pattern in patterns_of(domain)
            for number in self._numbers.get((source, pattern), ())
        }
        return [self._settings.rules[number] for number in sorted(numbers)]


def _header(content: bytes, end: int) -> bytes:
    """The header that ends there, as lines that all have an end."""
    return content[:end] if content.endswith(b"\r\n", 0, end) else content[:end] + b"\r\n"


def _read_header(header: bytes) -> dkim.DKIM:
    """The fields, as dkimpy has them; raises one of _MALFORMED, also for more than it reads in short time."""
    if len(header) > _MOST_OCTETS or len(header) * header.count(b"\n") > _MOST_COPIED:
        raise dkim.MessageFormatError("longer than what is read")
    return dkim.DKIM(header, logger=_QUIET, signature_algorithm=b"ed25519-sha256")


def active_keys(keys: Sequence[Key], now: datetime) -> list[Key]:
    """Of each algorithm the newest key in its time: the latest to begin, and of equals the last."""
    newest: dict[str, Key] = {}
    for key in keys:
        held = newest.get(key.private.algorithm)
        if key.begins <= now < key.ends and (held is None or held.begins <= key.begins):
            newest[key.private.algorithm] = key
    return list(newest.values())


def _read(index: int, rule: SigningRule) -> list[Key]:
    return _read_keys(rule.keys, rule.id, f"signing.rules[{index}]")


def _read_arc(settings: Arc) -> list[Key]:
    """The keys that seal; ConfigError for one that is not RSA, which is all that RFC 8617 has verifiers know."""
    keys = _read_keys(settings.keys, "arc", "signing.arc")
    for number, key in enumerate(keys):
        if key.private.algorithm != "rsa-sha256":
            raise ConfigError(f"signing.arc.keys[{number}].file: holds a key of another kind; allowed: RSA")
    return keys


def _read_keys(keys: Sequence[SigningKey], rule: str, place: str) -> list[Key]:
    """The keys in their files; ConfigError for the first that cannot be used."""
    found = []
    for number, settings in enumerate(keys):
        try:
            private = read_key(settings.file)
        except UnusableKey as error:
            raise ConfigError(f"{place}.keys[{number}].file: {error}") from None
        found.append(Key(settings.selector, private, settings.notbefore or _ALWAYS, settings.notafter or _FOR_EVER))
        events.emit("sign.loaded", rule=rule, selector=settings.selector, algorithm=private.algorithm)
    return found


def _signing_domain(rule: SigningRule, domains: Mapping[str, str | None]) -> str | None:
    """The d= by which this rule, which fits, signs; None where that is too long."""
    domain = rule.domain or domains[rule.source]
    return domain if domain is not None and len(domain) <= _LONGEST_DOMAIN else None


def patterns_of(domain: str) -> set[str]:
    """Every pattern that the domain fits: itself, each domain that it is below, and the one for all."""
    return {"*", domain} | {"*" + domain[at:] for at, letter in enumerate(domain) if letter == "."}


def _field(message: dkim.DKIM, names: list[bytes], digest: bytes, domain: str, key: Key, now: datetime) -> bytes:
    """One field DKIM-Signature.

    dkimpy folds, canonicalizes and hashes the header. Its own `sign` would digest the body and read the key each time,
    and its RSA takes 6 ms without letting go of the interpreter; so the key signs, by the one way that dkimpy leaves to
    a key, which is that of Ed25519.
    """
    message.hasher = hashlib.sha256
    fields = [
        (b"v", b"1"),
        (b"a", key.private.algorithm.encode()),
        (b"c", b"relaxed/relaxed"),
        (b"d", domain.encode()),
        (b"s", key.selector.encode()),
        (b"t", str(int(now.timestamp())).encode()),
        (b"h", b": ".join(names)),
        (b"bh", base64.b64encode(digest)),
        (b"b", b"0" * 60),  # so long that b= begins a line of its own, as dkimpy's `sign` does it
    ]
    value: bytes = message.gen_header(fields, names, _RELAXED, b"DKIM-Signature", key.private)
    return b"DKIM-Signature: " + value


def _skipped(message_id: UUID, chosen: Sequence[tuple[str, Key]], seal: arc.Seal | None, reason: str) -> Signed:
    """A message for which no signature would verify; waiting would not help."""
    domain = chosen[0][0] if chosen else seal and seal.domain
    events.emit("sign.skipped", id=message_id, domain=domain, reason=reason)
    return Signed()
