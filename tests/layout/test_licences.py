"""test_licences — no package of an installation, with or without its extras web and tracing, is under the GPL

Guarantees: the packages that they need in turn count too. LGPL is allowed: psycopg is a library that we only import.
"""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, distribution
from typing import Final

from packaging.requirements import Requirement

_GPL: Final = re.compile(r"\bA?GPL|General Public Licen[sc]e", re.IGNORECASE)
_LESSER: Final = re.compile(r"LGPL|Lesser General Public|Library General Public", re.IGNORECASE)


def installed(name: str, extras: frozenset[str], seen: dict[str, str]) -> dict[str, str]:
    """Each package that this one needs, and what it says of its licence."""
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return seen  # of another platform
    named = [found.metadata.get("License-Expression") or found.metadata.get("License") or ""]
    named += [each for each in found.metadata.get_all("Classifier") or [] if each.startswith("License ::")]
    seen[name] = "; ".join(line for text in named for line in text.splitlines()[:1])
    for line in found.requires or []:
        need = Requirement(line)
        wanted = need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in (*extras, ""))
        if wanted and need.name not in seen:
            installed(need.name, frozenset(need.extras), seen)
    return seen


def is_gpl(licence: str) -> bool:
    """Whether a licence is the GPL or AGPL, and not the LGPL."""
    return any(_GPL.search(part) and not _LESSER.search(part) for part in licence.split("; "))


def test_no_package_of_an_installation_is_under_the_gpl() -> None:
    found = installed("pillarbox", frozenset({"web", "tracing"}), {})
    assert {"psycopg", "fastapi", "uvloop"} <= found.keys()
    assert [name for name, licence in found.items() if not licence] == []
    assert {name: licence for name, licence in found.items() if is_gpl(licence)} == {}


def test_the_gpl_is_told_from_the_lgpl() -> None:
    for gpl in ("GPL-3.0-only", "AGPL-3.0", "License :: OSI Approved :: GNU General Public License v3 (GPLv3)"):
        assert is_gpl(gpl)
    for other in ("LGPL-3.0-only", "License :: OSI Approved :: GNU Lesser General Public License v3 (LGPLv3)", "MIT"):
        assert not is_gpl(other)
