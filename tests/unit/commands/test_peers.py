"""test_peers — a library counts as found only if preloading it has an effect; missing ones are reported

Owns: proofs about LIBRARIES of scripts/dev/peers.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scripts.dev.peers import LIBRARIES, find_library, how_to_get, preloads

if TYPE_CHECKING:
    from pathlib import Path


def test_a_file_without_effect_when_preloaded_is_not_the_library(tmp_path: Path) -> None:
    other = tmp_path / "libfaketime.so.1"
    other.write_bytes(b"not a library")
    for library in LIBRARIES.values():
        assert not preloads(library, other)
        assert not preloads(library, tmp_path / "absent")


def test_a_library_that_is_found_has_its_effect() -> None:
    for name, library in LIBRARIES.items():
        found = find_library(name)
        assert found is None or preloads(library, found)


def test_a_missing_library_is_reported_with_its_package() -> None:
    assert how_to_get("libfaketime") == (
        "libfaketime is missing; run `make peers`, or install it (Debian, Ubuntu: apt-get install libfaketime)"
    )
