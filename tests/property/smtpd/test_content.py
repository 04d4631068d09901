"""test_content — bare line ends are found in any content, and repairing leaves none

Owns: properties of smtpd/message/content.py.
See: RFC 5321 section 2.3.8.
"""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from shared.config.smtpd.content import DataPhase
from smtpd.envelope.parameters import MailParameters, Refused
from smtpd.message import content as contents

_BARE = re.compile(rb"\r(?!\n)|(?<!\r)\n")
#: Lines of one length with an insertion; the shortcut in the code is for these.
REGULAR = st.tuples(
    st.integers(0, 3),
    st.integers(98, 110),
    st.sampled_from([b"", b"\r", b"\n", b"\n\r", b"x", b"\r\n"]),
    st.integers(0, 700),
).map(lambda t: (made := (b"x" * t[0] + b"\r\n") * t[1])[: t[3]] + t[2] + made[t[3] :])
ANY = st.lists(st.sampled_from([b"\r\n", b"\r", b"\n", b"x", b".", b"longer text"])).map(b"".join)


@given(ANY | REGULAR)
async def test_bare_line_ends_are_found_and_normalized(content: bytes) -> None:
    content = b"\r\n" + content
    try:
        await contents.check(content, MailParameters(), DataPhase(), "mx.example")
        refused = False
    except Refused:
        refused = True
    assert refused == (_BARE.search(content) is not None)
    normalize = DataPhase.model_validate({"barenewline": "normalize"})
    mended = (await contents.check(content, MailParameters(), normalize, "mx.example")).content
    assert mended == re.sub(rb"\r?\n|\r", b"\r\n", content)
