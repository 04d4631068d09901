"""test_requirements — what ships is pinned by hash, in the versions of constraints.txt, and nothing is missing

Guarantees: a package that pyproject.toml gains, or a version that constraints.txt changes, fails `make check` until
    `make lock` has written deploy/requirements too; else the image and the Debian package would not build.
"""

from __future__ import annotations

import re
from typing import Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.layout.sources import ROOT
from tests.layout.test_licences import installed

_BLOCK: Final = re.compile(
    r"^(\S+==\S+)(?: ;[^\n]*?)? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE
)
_EXTRAS: Final = {"web": frozenset({"web"}), "analytics": frozenset({"web", "analytics"})}


def pins(text: str) -> dict[str, str]:
    """Each package's version, by its canonical name."""
    found = [Requirement(line) for line in re.findall(r"^[A-Za-z][^\s;]*==[^\s;]*", text, re.MULTILINE)]
    return {canonicalize_name(each.name): str(each.specifier) for each in found}


@pytest.mark.parametrize("name", _EXTRAS)
def test_what_ships_is_pinned_by_hash(name: str) -> None:
    text = (ROOT / f"deploy/requirements/{name}.txt").read_text(encoding="utf-8")
    assert text.startswith("# ")
    assert _BLOCK.sub("", text).count("\n") == 1  # nothing but a sentence, and packages with their hashes
    constraints = pins((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    shipped = pins(text)
    assert {
        package: version for package, version in shipped.items() if constraints.get(package, version) != version
    } == {}
    # Constraints are of Linux; Windows alone needs tzdata, and a build alone setuptools.
    assert shipped.keys() - constraints.keys() <= {"tzdata", "colorama", "setuptools"}
    needed = {canonicalize_name(each) for each in installed("pillarbox", _EXTRAS[name], {})} - {"pillarbox"}
    assert needed - shipped.keys() == set()
