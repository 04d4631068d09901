"""texts — normalises domains and the wordings of replies, as Spark's columns

Owns: the test for invalid domains, and the noise in a reply: addresses, numbers, ids, URLs, host names, quoted words.
Guarantees: pure. A reply is cut before patterns see it, so that no text takes long.
See: RFC 5321 section 4.5.3.1.2, a domain has at most 255 octets, and section 4.5.3.1.5, a reply line at most 512.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from scripts.analytics.analyses.marks import NO_HOST, UNUSABLE

if TYPE_CHECKING:
    from pyspark.sql import Column

_LONGEST_DOMAIN: Final = 255
_LONGEST: Final = 300  # of a wording
#: A host's name in attempts.remote, such as mx1.example.com[192.0.2.1]:25; and its last labels, three below co.uk.
_HOST: Final = r"^([^\[:]*[a-z][^\[:]*)"
_LAST: Final = r"([^.]+\.(?:(?:ac|co|com|edu|go|gov|ne|net|or|org)\.[a-z]{2}|[^.]*[a-z][^.]*))\.?$"
_ALIEN: Final = "[\\x00-\\x20\\x7f<>@,;\\\\\\x{FFFD}]"

#: The parts that differ between replies of one wording, tried from left to right at each place, in one pass.
_NOISE: Final = (
    r"(?i)https?://[^\s<>\"]+"
    r"|<[^<>\s]*>"
    r"|\"[^\"]+\""
    r"|\B'[^']{1,80}'\B"
    r"|[\pL\pN_.+=/&%#~-]+@[\pL\pN_.\[\]:-]+"
    r"|\b(?:[a-z][a-z-]*)?[\pN_][\pL\pN_.:+/=-]*"
    r"|\B-[a-z-]*[\pN_][\pL\pN_.:+/=-]*"
    r"|(?:\b[a-z]|\B-)[a-z-]*(?:\.[\pL\pN_-]+)+"
)
#: Letters and digits in a row with a digit among them: whatever it is, it belongs to one of the parts above.
_NUMBERED: Final = r"(?<![A-Za-z])[A-Za-z]*+\d[A-Za-z\d]*+"
#: What is done to the rest, in this order: adjacent gaps merged, white space made one space, leading gaps removed.
_TIDIED: Final = (
    (r"(?:\*[\s.,:;()\[\]/-]*){2,}", "* "),
    (r"\s+", " "),
    (r"^[*\s:-]+(\S)", "$1"),
)


def unusable(name: str) -> Column:
    """Whether a column holds what cannot be a domain."""
    long = f.octet_length(name) > _LONGEST_DOMAIN
    return (f.col(name) == "") | long | f.col(name).rlike(_ALIEN)


def domain(name: str) -> Column:
    """A domain in lower case; UNUSABLE if it is invalid; NULL stays."""
    return f.when(unusable(name), UNUSABLE).otherwise(f.lower(name))


def provider(name: str) -> Column:
    """Whose mail exchanger a host is: the last labels of its name; NO_HOST where it has no name."""
    host = f.regexp_extract(f.lower(name), _HOST, 1)
    found = f.regexp_extract(host, _LAST, 1)
    return f.when(found != "", found).when(host != "", host).otherwise(f.lit(NO_HOST))


def text(name: str) -> Column:
    """A reply, cut; "(no reply)" where there was none."""
    return f.coalesce(f.substring(name, 1, 2 * _LONGEST), f.lit("(no reply)"))


def rough(reply: Column) -> Column:
    """A reply's text with a 0 for each number and id, of which most replies have one of their own.

    Its wording is that of the reply, and costs more than this: so replies are counted by this text first. (A digit
    right behind a letter beyond a to z is in the wording, and here a 0.)
    """
    return f.regexp_replace(reply, _NUMBERED, "0")


def wording(reply: Column) -> Column:
    """A reply's text with a `*` for each part that differs between messages."""
    said = f.regexp_replace(reply, _NOISE, "*")
    for pattern, replacement in _TIDIED:
        said = f.regexp_replace(said, pattern, replacement)
    return f.substring(f.trim(said), 1, _LONGEST)
