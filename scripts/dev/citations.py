"""citations — `python -m scripts.dev.citations`: lists RFCs and the files that cite them, and checks cited sections

Owns: finding "RFC n section m" in the sources, comparing it with docs/reference/rfcs.csv, and the page rfcs.md.
Guarantees: an RFC or a section that is not in the table is a fault with its file and line. A section enters the table
    only after a look-up in the RFC's text, so that a typo does not pass as a source.
Raises: nothing; the exit status is 1 when there are faults.
"""

from __future__ import annotations

import csv
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT: Final = Path(__file__).resolve().parents[2]
TABLE: Final = Path("docs/reference/rfcs.csv")
FOLDERS: Final = (
    "smtpd",
    "shared",
    "queued",
    "collect",
    "operate",
    "httpd",
    "scripts",
    "sql",
    "config",
    "docs",
    "tests",
)
_KINDS: Final = {".py", ".sql", ".md", ".yaml"}
#: The meaning of each status; in this order on the page.
STATUSES: Final = {
    "implemented": "its requirements on us are met",
    "partly": "the remark says what is missing",
    "source": "of a format, a number or a term; nothing to implement",
    "not": "deliberately not implemented",
}

_NUMBER: Final = r"(?:[0-9]+|[A-Z])(?:\.[0-9]+)*"
_ITEM: Final = rf"§?{_NUMBER}(?![0-9A-Za-z])(?: \([^()]*\))?"
_LIST: Final = rf"{_ITEM}(?:(?:, and |, | and | or | to ){_ITEM})*"
_PLACE: Final = r",? (?:[Ss]ections?|[Aa]ppendix|[Aa]ppendices) "
_CITED: Final = re.compile(rf"RFC ?(?P<rfc>[0-9]{{3,5}})(?:'s)?(?:{_PLACE}(?P<after>{_LIST})| (?P<sign>§{_LIST}))?")
_BEFORE: Final = re.compile(rf"[Ss]ections? (?P<list>{_LIST}) of RFC ?(?P<rfc>[0-9]{{3,5}})")
# A sentence continues in the next line, after its comment sign.
_CONTINUED: Final = re.compile(r"[ \t]*\n[ \t]*(?:#:? |-- )?[ \t]*")


@dataclass(frozen=True, slots=True)
class Known:
    """One row of the table."""

    rfc: int
    title: str
    status: str
    sections: frozenset[str]
    remark: str


@dataclass(slots=True)
class Cited:
    """Where an RFC is cited: file → sections named there."""

    files: dict[str, set[str]] = field(default_factory=dict)


def citations(text: str) -> Iterator[tuple[int, int, frozenset[str]]]:
    """Line, RFC and sections of each citation in a text."""
    lines = [0]
    flat = ""
    position = 0
    for found in _CONTINUED.finditer(text):
        flat += text[position : found.start()] + " "
        lines.append(len(flat))
        position = found.end()
    flat += text[position:]
    for pattern, group in ((_CITED, "after"), (_BEFORE, "list")):
        for found in pattern.finditer(flat):
            named = found[group] or (found["sign"] if group == "after" else "") or ""
            line = sum(start <= found.start() for start in lines)
            yield (
                line,
                int(found["rfc"]),
                frozenset(re.findall(rf"(?<![0-9.(]){_NUMBER}", re.sub(r" \([^()]*\)", "", named))),
            )


def known(root: Path = ROOT) -> dict[int, Known]:
    """The table."""
    with (root / TABLE).open(newline="", encoding="utf-8") as file:
        return {
            int(row["rfc"]): Known(
                int(row["rfc"]), row["title"], row["status"], frozenset(row["sections"].split()), row["remark"]
            )
            for row in csv.DictReader(file)
        }


def sources(root: Path = ROOT) -> Iterator[Path]:
    """Every file that may contain citations."""
    for folder in FOLDERS:
        yield from sorted(
            path
            for path in (root / folder).rglob("*")
            if path.suffix in _KINDS and "__pycache__" not in path.parts and path.name != "rfcs.md"
        )
    yield root / "README.md"


def examine(files: Iterable[Path], table: dict[int, Known], root: Path = ROOT) -> tuple[dict[int, Cited], list[str]]:
    """The files that cite each RFC, and the faults."""
    cited: dict[int, Cited] = {}
    faults = []
    for path in files:
        name = str(path.relative_to(root))
        for line, rfc, sections in citations(path.read_text(encoding="utf-8")):
            cited.setdefault(rfc, Cited()).files.setdefault(name, set()).update(sections)
            if rfc not in table:
                faults.append(f"{name}:{line}: RFC {rfc} is not in {TABLE}")
                continue
            faults += [
                f"{name}:{line}: RFC {rfc} section {section} is not in {TABLE}: look it up, then add it"
                for section in sorted(sections - table[rfc].sections)
            ]
    faults += [f"{TABLE}: RFC {rfc} is cited nowhere" for rfc in sorted(table.keys() - cited.keys())]
    allowed = ", ".join(STATUSES)
    faults += [
        f"{TABLE}: RFC {k.rfc}: status {k.status} is not valid; allowed: {allowed}"
        for k in table.values()
        if k.status not in STATUSES
    ]
    return cited, faults


def page(root: Path = ROOT) -> str:
    """docs/reference/rfcs.md: each RFC with its status and the files that cite it."""
    table = known(root)
    cited, _ = examine(sources(root), table, root)
    text = "# RFCs\n\nThe status of each RFC, and the product's files that cite it, from rfcs.csv and the sources.\n"
    for status, meaning in STATUSES.items():
        rows = [k for k in table.values() if k.status == status]
        if not rows:
            continue
        text += f"\n## {status.capitalize()}: {meaning}\n\n| RFC | title | remark | cited in |\n|---|---|---|---|\n"
        for k in sorted(rows, key=lambda k: k.rfc):
            files = cited[k.rfc].files if k.rfc in cited else {}
            shown = ", ".join(f"`{name}`" for name in sorted(files) if name.split("/")[0] not in {"tests", "docs"})
            text += f"| {k.rfc} | {k.title} | {k.remark} | {shown or 'tests and documents'} |\n"
    return text


def main() -> int:
    """Print RFC → status → files, then the faults."""
    table = known()
    cited, faults = examine(sources(), table)
    shown = Table("RFC", "status", "title", "files")
    for rfc in sorted(cited):
        row = table.get(rfc)
        files = "\n".join(
            f"{name}: {', '.join(sorted(sections)) or 'as a whole'}"
            for name, sections in sorted(cited[rfc].files.items())
        )
        shown.add_row(str(rfc), row.status if row else "?", row.title if row else "?", files)
    Console().print(shown)
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
