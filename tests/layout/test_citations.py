"""test_citations — every RFC and section that the sources cite is in docs/reference/rfcs.csv

Owns: the comparison, and proofs that scripts/dev/citations.py finds every citation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scripts.dev.citations import TABLE, Known, citations, examine, known, sources

if TYPE_CHECKING:
    from pathlib import Path


def test_every_citation_is_in_the_table_and_every_row_is_cited() -> None:
    cited, faults = examine(sources(), known())
    assert len(cited) > 20
    assert not faults, "\n".join(faults)


# Written in halves, so that this file's own examples are not taken for citations.
R = "RF" + "C"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"See: {R} 5321.", [(5321, set())]),
        (f"{R} 5321 section 4.1.1.4", [(5321, {"4.1.1.4"})]),
        (f"{R} 5321 sections 3.3, 4.1.1 and 4.2; {R} 3461", [(5321, {"3.3", "4.1.1", "4.2"}), (3461, set())]),
        (f"{R} 5321 sections 4.1.1.11 (555), 4.1.2; x", [(5321, {"4.1.1.11", "4.1.2"})]),
        (f"{R} 5321 sections 4.1.1.5 to 4.1.1.10", [(5321, {"4.1.1.5", "4.1.1.10"})]),
        (f"{R} 5321, section 4.5.3.1.8, appendix", [(5321, {"4.5.3.1.8"})]),
        (f"{R} 4422 appendix A", [(4422, {"A"})]),
        (f"{R} 5321 §4.1.1 and §4.1.2, {R} 1870", [(5321, {"4.1.1", "4.1.2"}), (1870, set())]),
        (f"section 4.5 of {R} 5322", [(5322, set()), (5322, {"4.5"})]),
        (f"# {R} 5321\n    # section 4.4", [(5321, {"4.4"})]),
        (f"-- {R} 5321 sections 4.1,\n-- 4.2", [(5321, {"4.1", "4.2"})]),
        (f"{R} 1870 section 6.1: 1000 octets", [(1870, {"6.1"})]),
        (f"{R} 9562 section 5.7. An id", [(9562, {"5.7"})]),
    ],
)
def test_every_form_of_a_citation_is_found(text: str, found: list[tuple[int, set[str]]]) -> None:
    assert [(rfc, set(sections)) for _, rfc, sections in citations(text)] == found


def test_a_wrong_citation_is_reported_with_file_and_line(tmp_path: Path) -> None:
    source = tmp_path / "x.py"
    source.write_text(f"# {R} 5321 section 3.3\n# {R} 5321 section 33.3\n# {R} 9999\n")
    table = {
        5321: Known(5321, "SMTP", "implemented", frozenset({"3.3"}), ""),
        1870: Known(1870, "SIZE", "well", frozenset(), ""),
    }
    _, faults = examine([source], table, tmp_path)
    assert faults == [
        f"x.py:2: {R} 5321 section 33.3 is not in {TABLE}: look it up, then add it",
        f"x.py:3: {R} 9999 is not in {TABLE}",
        f"{TABLE}: {R} 1870 is cited nowhere",
        f"{TABLE}: {R} 1870: status well is not valid; allowed: implemented, partly, source, not",
    ]
