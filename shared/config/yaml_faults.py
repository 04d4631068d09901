"""yaml_faults — says in words, and at the right place, why a file is not YAML

Owns: the wording of what PyYAML's scanner and parser report, and where the fault began.
Guarantees: pure; one line.
See: https://yaml.org/spec/1.2.2/ chapters 6.1 (indentation), 7.3 (quotes), 7.4 (brackets)
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from shared.masking import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence


class Place(NamedTuple):
    """A place in the text, from 0."""

    line: int
    column: int


class Quoted(NamedTuple):
    """A text in quotes that the scanner has read: from its opening quote to after its closing one."""

    begin: Place
    end: Place


class Report(NamedTuple):
    """An error as PyYAML has it: what is wrong and where; what it was reading, and where that began."""

    problem: str
    at: Place
    context: str = ""
    began: Place | None = None


_CHARACTER: Final = re.compile(r"found character '(?P<character>.+)' that cannot start any token")
_ALIAS: Final = re.compile(r"found undefined alias '(?P<name>.*)'")
_NO_COLON: Final = "no colon after this key; allowed: key: value"
_BRACKETS: Final = {"while parsing a flow sequence": "[", "while parsing a flow mapping": "{"}
_OPENING: Final = {"']'": "[", "'}'": "{"}
_MARKS: Final = {"while scanning an alias": ("an alias", "*"), "while scanning an anchor": ("an anchor", "&")}


def in_words(report: Report, text: str, quoted: Sequence[Quoted]) -> tuple[Place, str]:
    """Where the fault is and what it is. `quoted`: the texts in quotes before it, in order."""
    lines = [*text.splitlines(), ""]
    for judge in (_of_quotes, _of_brackets, _of_colons, _of_indentation, _of_values):
        if found := judge(report, lines, quoted):
            return found
    return report.at, one_line(report.problem)


def _of_quotes(report: Report, _: Sequence[str], quoted: Sequence[Quoted]) -> tuple[Place, str] | None:
    """A quote that is not closed, or closed by the opening quote of a later text, or closed too early."""
    if report.began and "quoted scalar" in report.context and "end of" in report.problem:
        return report.began, "the quote that opens here is not closed"
    for each in reversed(quoted):
        if each.begin.line < each.end.line == report.at.line:
            line = each.end.line + 1
            return (
                each.begin,
                f"the quote that opens here is closed on line {line} only; is a quote missing before that?",
            )
    if any(each.end == report.at for each in quoted):
        return report.at, "text after the quote that ends before it; a quote within single quotes is written twice"
    return None


def _of_brackets(report: Report, _: Sequence[str], __: Sequence[Quoted]) -> tuple[Place, str] | None:
    if report.began and (bracket := _BRACKETS.get(report.context)):
        return report.began, f"the {bracket} that opens here is not closed before line {report.at.line + 1}"
    closing = report.problem.rpartition(" ")[2]
    if report.problem.startswith("expected <block end>") and (bracket := _OPENING.get(closing)):
        return report.at, f"a {closing[1]} without a {bracket} before it"
    return None


def _of_colons(report: Report, lines: Sequence[str], _: Sequence[Quoted]) -> tuple[Place, str] | None:
    if report.began and report.problem == "could not find expected ':'":
        return report.began, _NO_COLON
    if report.problem.startswith("mapping values") and ": " in lines[report.at.line][: report.at.column]:
        return report.at, "a second colon in one line; put text that holds a colon in quotes"
    return None


def _of_indentation(report: Report, lines: Sequence[str], _: Sequence[Quoted]) -> tuple[Place, str] | None:
    at = report.at
    if report.problem.startswith("mapping values"):
        before = next((number for number in range(at.line - 1, -1, -1) if lines[number].strip()), at.line)
        here, there = _indent(lines[at.line]), _indent(lines[before])
        if ":" not in lines[before]:
            return Place(before, there), _NO_COLON
        text = f"indented by {here}, but line {before + 1} above has a value already; allowed: {there}, as there"
        return Place(at.line, here), text
    if report.began is None or not report.problem.startswith("expected <block end>"):
        return None
    first = report.began.line + 1
    if at.column != report.began.column:
        text = f"indented by {at.column}, but its neighbours, from line {first} on, by {report.began.column}"
        return at, f"{text}; allowed: the same for all"
    if report.problem.endswith("'-'"):
        return at, f"a list entry among keys, which begin on line {first}; allowed: key: value"
    return at, f"a key among list entries, which begin on line {first}; allowed: - value"


def _of_values(report: Report, _: Sequence[str], __: Sequence[Quoted]) -> tuple[Place, str] | None:
    if report.began and (mark := _MARKS.get(report.context)):
        return report.began, f"{mark[0]} begins with {mark[1]}; put text that begins with {mark[1]} in quotes"
    found, words = _CHARACTER.fullmatch(report.problem), None
    if found:
        tab = found["character"] == "\\t"
        words = "a tab; allowed: spaces" if tab else f"a value cannot begin with {found['character']}; put it in quotes"
    elif alias := _ALIAS.fullmatch(report.problem):
        words = f"*{alias['name']} refers to nothing; put text that begins with * in quotes"
    elif "another document" in report.problem:
        words = "a second document begins here; allowed: one"
    elif report.problem.startswith("found unknown escape character"):
        words = "not an escape in double quotes; allowed: \\\\ for a backslash, or single quotes"
    return (report.at, words) if words else None


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
