"""test_account_token — signed secrets of both forms, compared with an independent implementation (Node's crypto)

See: https://github.com/tetsuo/mailroom, etc/verifyHmac.js, for the first form.
"""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from shared.security.account_token import ACTIVATE, RECOVER, Verified, read_key, sign, sign_bound, verify

_KEY = bytes.fromhex("cafebabe" * 8)
_OTHER = bytes.fromhex("deadbeef" * 8)
_SECRET = bytes(range(32))
_AT = 1_800_000_000

# By Node's documentation alone. In: key, path, code, text. Out: the secret in hexadecimal or null.
_NODE = """
const crypto = require('crypto')
const asked = JSON.parse(require('fs').readFileSync(0, 'utf8'))
const parts = asked.text.split('.')
const octets = Buffer.from(parts[parts.length - 1], 'base64url')
const secret = octets.subarray(0, 32)
const code = asked.path === '/recover' ? asked.code : ''
const context = parts.length === 1
  ? asked.path
  : ['pillarbox account token 1', parts[0], parts[1], asked.path, ''].join('\\0')
const mac = crypto.createHmac('sha256', Buffer.from(asked.key, 'hex'))
  .update(context).update(secret).update(code).digest()
const valid = octets.length === 64 && crypto.timingSafeEqual(mac, octets.subarray(32))
const made = Buffer.concat([secret, mac]).toString('base64url')
console.log(JSON.stringify({secret: valid ? secret.toString('hex') : null, made}))
"""


def node(path: str, text: str, code: str = "", key: bytes = _KEY) -> dict[str, str | None]:
    """What Node says about a text: the secret if the signature is right, and the signed secret that it makes itself."""
    program = shutil.which("node")
    if program is None:
        pytest.skip("no node here: apt-get install nodejs")
    asked = json.dumps({"key": key.hex(), "path": path, "code": code, "text": text})
    done = subprocess.run([program, "-e", _NODE], input=asked, capture_output=True, text=True, check=True)
    answer: dict[str, str | None] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize(("path", "code"), [(ACTIVATE, ""), (RECOVER, "06435")])
def test_node_verifies_both_forms_and_makes_the_same(path: str, code: str) -> None:
    plain = sign(_KEY, path, _SECRET, code)
    bound = sign_bound("2026-11", _KEY, path, _SECRET, _AT, code)
    for text in (plain, bound):
        answer = node(path, text, code)
        assert answer == {"secret": _SECRET.hex(), "made": text.rpartition(".")[2]}
        assert node(path, text, code, _OTHER)["secret"] is None
    assert len(plain) == 86
    if code:
        assert node(path, plain, "06436")["secret"] is None


def test_the_example_of_mailroom_s_verifier_is_valid() -> None:
    text = "Qg84W2nmW8ClkDGZBdoC7UXM0BakAhmlBmR4emc4JJji0aMHLqfdM07rn1sHN8tvGk9go-hsKJMwvtqdGm5Cjw"
    found = verify({"k": _OTHER}, ACTIVATE, text)
    assert found == Verified(bytes.fromhex("420f385b69e65bc0a590319905da02ed45ccd016a40219a50664787a67382498"))


def test_activation_s_code_is_not_signed_and_recovery_s_is() -> None:
    assert verify({"k": _KEY}, ACTIVATE, sign(_KEY, ACTIVATE, _SECRET, "12345"), "54321") == Verified(_SECRET)
    recovery = sign(_KEY, RECOVER, _SECRET, "12345")
    assert verify({"k": _KEY}, RECOVER, recovery, "12345") == Verified(_SECRET)
    assert verify({"k": _KEY}, RECOVER, recovery, "12346") is None
    assert verify({"k": _KEY}, RECOVER, recovery) is None
    assert verify({"k": _KEY}, ACTIVATE, recovery) is None


def test_keys_are_rotated() -> None:
    keys = {"old": _KEY, "new": _OTHER}
    for name, key in keys.items():
        assert verify(keys, ACTIVATE, sign(key, ACTIVATE, _SECRET)) == Verified(_SECRET)
        bound = sign_bound(name, key, ACTIVATE, _SECRET, _AT)
        assert verify(keys, ACTIVATE, bound, now=_AT - 1) == Verified(_SECRET, name, _AT)
    del keys["old"]
    assert verify(keys, ACTIVATE, sign(_KEY, ACTIVATE, _SECRET)) is None
    assert verify(keys, ACTIVATE, sign_bound("old", _KEY, ACTIVATE, _SECRET, _AT), now=1) is None


def test_expiry_and_the_name_of_the_key_are_signed() -> None:
    keys = {"a": _KEY, "b": _KEY}
    bound = sign_bound("a", _KEY, ACTIVATE, _SECRET, _AT)
    assert verify(keys, ACTIVATE, bound, now=_AT) is None
    name, expiry, rest = bound.split(".")
    assert verify(keys, ACTIVATE, f"b.{expiry}.{rest}", now=1) is None
    assert verify(keys, ACTIVATE, f"{name}.{int(expiry) + 900}.{rest}", now=1) is None
    assert verify(keys, ACTIVATE, f"{name}.0{expiry}.{rest}", now=1) is None
    assert verify(keys, ACTIVATE, rest, now=1) is None, "the one form is not taken for the other"


@pytest.mark.parametrize(
    "text", ["", "x", "A" * 85, "A" * 87, "A" * 86 + "=", "é" * 86, "k..." + "A" * 86, f"k.{'9' * 30}.{'A' * 86}"]
)
def test_anything_else_is_invalid_and_raises_nothing(text: str) -> None:
    assert verify({"k": _KEY}, ACTIVATE, text) is None


@pytest.mark.parametrize("code", ["", "1234é", "\ud800", "\0", "9" * 1000])
def test_no_other_code_is_valid_and_none_raises(code: str) -> None:
    mailroom, bound = sign(_KEY, RECOVER, _SECRET, "12345"), sign_bound("k", _KEY, RECOVER, _SECRET, _AT, "12345")
    for text in (mailroom, bound):
        assert verify({"k": _KEY}, RECOVER, text, "12345", now=1) is not None
        assert verify({"k": _KEY}, RECOVER, text, code, now=1) is None


def test_every_octet_of_a_text_counts() -> None:
    for text in (sign(_KEY, ACTIVATE, _SECRET), sign_bound("k", _KEY, ACTIVATE, _SECRET, _AT)):
        for place, letter in enumerate(text):
            changed = f"{text[:place]}{'B' if letter != 'B' else 'C'}{text[place + 1 :]}"
            assert verify({"k": _KEY}, ACTIVATE, changed, now=1) is None, place


@pytest.mark.parametrize("text", ["", "cafe", "g" * 64, "ca fe" * 16, "cafebabe" * 9])
def test_a_key_is_sixty_four_hexadecimal_digits(text: str) -> None:
    with pytest.raises(ValueError, match="64 hexadecimal digits"):
        read_key(text)
