"""rollup_texts — normalises domains and the wordings of replies before they are counted

Owns: the test for invalid domains, and the noise in a reply: addresses, numbers, ids, URLs, host names, quoted words.
Guarantees: pure. Patterns take time linear in any text (Arrow uses RE2).
See: RFC 5321 section 4.5.3.1.2, a domain has at most 255 octets, and section 4.5.3.1.5, a reply line at most 512.
"""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from scripts.analytics.analyses.marks import UNUSABLE

_LONGEST_DOMAIN: Final = 255
_LONGEST: Final = 300  # of a wording
_ALIEN: Final = re.compile("[\\x00-\\x20\\x7f<>@,;\\\\\N{REPLACEMENT CHARACTER}]")

_WORD: Final = r"[\pL\pN_]"
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


def domain(name: str) -> str:
    """A domain in lower case; UNUSABLE if it is invalid."""
    if not name or len(name.encode()) > _LONGEST_DOMAIN or _ALIEN.search(name):
        return UNUSABLE
    return name.lower()


def wording(replies: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Each reply's text, and the text with a `*` for each part that differs between messages.

    Adjacent `*` are merged, leading ones removed; white space is a single space.
    """
    text = pc.fill_null(pc.utf8_slice_codeunits(replies, 0, 2 * _LONGEST), "(no reply)")
    rough = pc.replace_substring_regex(text, _NOISE, "*").dictionary_encode()
    said = pc.replace_substring_regex(rough.dictionary, r"(?:\*[\s.,:;()\[\]/-]*){2,}", "* ")
    said = pc.replace_substring_regex(said, r"\s+", " ")
    said = pc.replace_substring_regex(said, r"^[*\s:-]+(\S)", r"\1")
    said = pc.utf8_slice_codeunits(pc.utf8_trim_whitespace(said), 0, _LONGEST)
    return text, pa.DictionaryArray.from_arrays(rough.indices, said)
