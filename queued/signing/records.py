"""records — the public keys that DNS has to have for the rules that sign, compared with what it has

Guarantees: pure.
See: RFC 6376 section 3.6.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.config.queued.signing import SigningKey, SigningRule


def published_keys(rule: SigningRule) -> Iterator[tuple[SigningKey, str]]:
    """Every name that has to be in DNS; below a * any may, which cannot be checked."""
    domains = [rule.domain] if rule.domain else [name for name in rule.senderdomain if not name.startswith("*")]
    for key in rule.keys:
        for domain in domains:
            yield key, domain


def difference(ours: str, found: str | None) -> str | None:
    """The fault of a record in DNS, compared with the one that our key needs; None when it is right.

    found: None when DNS has none.
    """
    if found is None:
        return "DNS has no such record"
    want, have = _tags(ours), _tags(found)
    if have.get("p") == "":
        return "the key in DNS is revoked (p= is empty)"
    if have.get("k", "rsa") != want["k"] or have.get("p") != want["p"]:
        return "DNS has another key"
    return None


def _tags(record: str) -> dict[str, str]:
    """The tags of a record, white space left out (RFC 6376 section 3.2)."""
    pairs = (part.partition("=") for part in "".join(record.split()).split(";"))
    return {name: value for name, _, value in pairs if name}
