"""line_length — breaks the lines of a message that are longer than the next hop need take

Owns: where a line is broken: before white space if it has any within the limit, which folds a header field and leaves
    text as it reads; else by CR LF and a space.
Guarantees: content with short lines alone is returned as it is. Otherwise only line ends and such spaces are added, no
    line has more octets than the limit, and no character of UTF-8 is divided. The time is linear.
See: RFC 5321 section 4.5.3.1.6 (hosts take lines of 998 octets); Postfix smtp_line_length_limit. Exim's default
    configuration refuses mail with longer ones.
Bugs: a signature that the submitter made over a long line breaks, as with Postfix; ours are made afterwards. While a
    message with long lines is in flight, it is held twice.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from queued.values import Body

if TYPE_CHECKING:
    from collections.abc import Iterator

_LARGE: Final = 1 << 20  # octets; from here on the event loop goes on meanwhile: 10 MB of one line take 50 ms


async def within(body: Body, limit: int) -> Body:
    """The body with lines of at most `limit` octets; the same one for all who ask, so that it is signed once."""
    if limit in body.shortened:
        return body.shortened[limit] or body
    if len(body.content) > _LARGE:
        content = await asyncio.to_thread(break_lines, body.content, limit)
    else:
        content = break_lines(body.content, limit)
    if content is not body.content:
        return body.shortened.setdefault(limit, Body(content, body.smtputf8)) or body
    body.shortened[limit] = None
    return body


def break_lines(content: bytes, limit: int) -> bytes:
    """The content with lines of at most `limit` octets, without their CR LF."""
    pieces = list(_pieces(content, limit))
    return b"".join(pieces) if len(pieces) > 1 else content


def _pieces(content: bytes, limit: int) -> Iterator[bytes]:
    begun = start = 0  # of the piece, and of the line
    room = limit
    while len(content) - start > room:
        end = content.rfind(b"\r\n", start, start + room + 2)
        if end >= 0:  # all lines up to there are short enough
            start, room = end + 2, limit
            continue
        reach = start + room + 1
        space = max(content.rfind(b" ", start + 1, reach), content.rfind(b"\t", start + 1, reach))
        if space >= 0:
            yield content[begun:space] + b"\r\n"
            begun = start = space
            room = limit
        else:
            end = _between_characters(content, start + room)
            yield content[begun:end] + b"\r\n "
            begun = start = end
            room = limit - 1
    yield content[begun:]


def _between_characters(content: bytes, position: int) -> int:
    """The last place up to here at which no character of UTF-8 is divided; here, if there is none near."""
    for back in range(4):
        if content[position - back] & 0xC0 != 0x80:  # noqa: PLR2004 - not a continuation octet
            return position - back
    return position
