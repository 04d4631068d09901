"""test_own_secrets — our login is masked in replies, in any encoding, and other text is unchanged"""

from __future__ import annotations

from base64 import b64encode
from typing import Final
from urllib.parse import quote, quote_plus

import pytest

from queued.smtp.own_secrets import OwnSecrets
from shared.mail.smtp_reply import Reply, ReplyParser

SECRET: Final = "pä%41ss + wörd/123"  # noqa: S105 - of tests
SENT: Final = b64encode(f"\0alice\0{SECRET}".encode()).decode()
BARE: Final = b64encode(SECRET.encode()).decode()


@pytest.fixture
def secrets() -> OwnSecrets:
    made = OwnSecrets(SECRET)
    made.add(SENT)
    return made


@pytest.mark.parametrize(
    "form",
    [
        *(SECRET, quote(SECRET), quote(SECRET, safe=""), quote_plus(SECRET), quote(SECRET).lower()),
        *(BARE, BARE.rstrip("="), SENT, SENT.rstrip("="), quote(SENT), quote_plus(SENT)),
        *(SENT[:10] + " " + SENT[10:], SENT[:10] + " 5.7.1 " + SENT[10:], SENT.replace("+", "-").replace("/", "_")),
        *("".join(f"%{octet:02X}" for octet in SECRET.encode()), " ".join(SENT)),
    ],
)
def test_every_encoding_of_a_secret_is_masked(secrets: OwnSecrets, form: str) -> None:
    assert secrets.clean(f"you said <{form}>, and <{form}>") == "you said <***>, and <***>"
    assert secrets.clean(form) == "***"


@pytest.mark.parametrize("text", ["", "OK", "a + b 100% 5.7.1 done", "queued as 4bXyZ 5.7.1", "pä%41ss", "%zz %"])
def test_other_text_stays_as_it_is(secrets: OwnSecrets, text: str) -> None:
    reply = Reply(250, "2.0.0", (text, text))
    assert secrets.clean(text) == text
    assert secrets.reply(reply) is reply


@pytest.mark.parametrize("shown", range(4, len(SENT)))
def test_a_truncated_secret_is_masked(secrets: OwnSecrets, shown: int) -> None:
    assert secrets.clean(f"you said {SENT[:shown]}…") == "you said ***…"
    for left_out in ("[3 lines left out]", "[1 line left out]"):
        assert secrets.clean(f"you said {left_out} {SENT[-shown:]} then").endswith("left out] *** then")


def test_a_secret_split_over_a_long_reply_is_masked(secrets: OwnSecrets) -> None:
    lines = [SENT[at : at + 4] for at in range(0, len(SENT), 4)]
    padded = ["x" * 990, *lines, "y" * 990]
    said = "".join(f"550-{line}\r\n" for line in padded) + "550 end\r\n"
    [reply] = ReplyParser().feed(said.encode())
    assert not any(line in secrets.reply(reply).text for line in lines)


def test_a_short_secret_is_masked_whole() -> None:
    assert OwnSecrets("ab").clean("ab YWI= YW") == "*** *** YW"


def test_a_reply_keeps_its_lines_where_a_secret_is_masked(secrets: OwnSecrets) -> None:
    said = ("peer.example greets you", f"AUTH PLAIN {SECRET}", "SIZE 1000")
    assert secrets.reply(Reply(250, None, said)).lines == ("peer.example greets you", "AUTH PLAIN ***", "SIZE 1000")


@pytest.mark.parametrize("before", ["", "a", "ab", "user=alice\x01auth=Bearer "])
@pytest.mark.parametrize("after", ["", "z", "\x01\x01"])
def test_a_secret_is_masked_inside_of_other_base64(before: str, after: str) -> None:
    """Of a response that is said in a later session no more than the characters around the secret stay."""
    known = OwnSecrets()
    known.hold("relay", SECRET)
    cleaned = known.clean(f"you said {b64encode(f'{before}{SECRET}{after}'.encode()).decode()}")
    head, _, tail = cleaned.removeprefix("you said ").partition("***")
    assert "***" in cleaned
    assert len(head) <= -(-8 * len(before) // 6)
    assert len(tail.rstrip("=")) <= 1 + -(-8 * len(after) // 6)


def test_the_latest_secrets_of_each_login_are_held() -> None:
    known = OwnSecrets()
    assert not known
    known.hold("other", SECRET)
    for number in range(100):
        known.hold("relay", f"token-{number:03}")
    session = OwnSecrets("in this session", known)
    said = f"{SECRET} token-068 token-099 in this session"
    assert session.clean(said) == "*** *** *** ***"
    assert known.clean(said) == "*** *** *** in this session"
    assert known.clean("token-000") == "token-000"
