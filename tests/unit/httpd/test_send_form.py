"""test_send_form — a value that a message may not have is told once, by its own place and with what is allowed

Owns: proofs about httpd/sending/forms.py; the words of pydantic's own types are pydantic's.
"""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from pydantic import ValidationError

from httpd.problems import invalid
from httpd.sending.forms import Send

NO_DOMAIN: Final = "is not an address: address has no domain; allowed: user@example.com or Name <user@example.com>"
NO_ADDRESS: Final = "is not an address; allowed: an address, or an array of addresses"
NO_VALUE: Final = (
    "is not a value of metadata; allowed: a line of up to 1000 characters, a whole number of 64 bits, "
    "another number up to 1e300, true or false"
)

HTTPS = "is not usable here; allowed: https:// and up to 900 printable ASCII characters but < and >"


def faults(form: dict[str, Any]) -> list[tuple[str, str]]:
    """Each thing that is wrong with a message: where, and why."""
    whole = {"from": "shop@example.com", "to": "ann@example.net", "text": "Thanks.", **form}
    with pytest.raises(ValidationError) as wrong:
        Send.model_validate_json(json.dumps(whole))
    return [(fault.where, fault.why) for fault in invalid(wrong.value.errors(), "body").errors]


@pytest.mark.parametrize(
    ("form", "where", "why"),
    [
        ({"to": "ann"}, "body.to", NO_DOMAIN),
        ({"to": ["ann@example.net", "bob"]}, "body.to[1]", NO_DOMAIN),
        ({"to": 5}, "body.to", NO_ADDRESS),
        ({"to": None}, "body.to", NO_ADDRESS),
        ({"cc": {"email": "ann@example.net"}}, "body.cc", NO_ADDRESS),
        ({"to": [["ann@example.net"]]}, "body.to[0]", "Input should be a valid string"),
        ({"metadata": {"order": [1]}}, "body.metadata.order", NO_VALUE),
        ({"metadata": {"order": "4711\r\n"}}, "body.metadata.order", NO_VALUE),
        ({"metadata": {"order": 1e301}}, "body.metadata.order", NO_VALUE),
        ({"list_unsubscribe": {"url": "http://x"}}, "body.list_unsubscribe.url", f'"http://x" {HTTPS}'),
        ({"list_unsubscribe": {"url": "https://x/>"}}, "body.list_unsubscribe.url", f'"https://x/>" {HTTPS}'),
        (
            {"attachments": [{"content": "", "filename": "a", "content_id": "<a>"}]},
            "body.attachments[0].content_id",
            '"<a>" is not usable here; allowed: 1 to 128 letters, digits and . _ % + @ -',
        ),
        ({"metadata": {"_key": 1}}, "body.metadata._key", '"_key" is reserved; allowed: keys that do not begin with _'),
    ],
)
def test_each_wrong_value_is_told_once_and_by_its_place(form: dict[str, Any], where: str, why: str) -> None:
    assert faults(form) == [(where, why)]


def test_values_of_metadata_keep_their_types() -> None:
    given = {"word": "4711", "yes": True, "whole": 2**62, "part": 0.5}
    form = Send.model_validate({"from": "a@b.example", "to": "c@d.example", "text": "", "metadata": given})
    assert [(type(value), value) for value in (form.metadata or {}).values()] == [
        (type(value), value) for value in given.values()
    ]
