"""test_arguments — the command lines by which programs call sendmail"""

from __future__ import annotations

import pytest

from scripts.sendmail.arguments import Asked, NotUsable, parse


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        # Debian's cron, PHP's default, git send-email, bsd-mailx, s-nail, logwatch, Django's and Ruby's mail.
        ("-i -FCronDaemon -B8BITMIME -oem root", Asked(recipients=["root"], full_name="CronDaemon", dot=False)),
        ("-t -i", Asked(from_header=True, dot=False)),
        ("-ti", Asked(from_header=True, dot=False)),
        ("-i -f a@example.com b@example.net", Asked(recipients=["b@example.net"], sender="a@example.com", dot=False)),
        ("-oi -fa@example.com -t", Asked(sender="a@example.com", from_header=True, dot=False)),
        ("-odb -oem -- -odd@example.net", Asked(recipients=["-odd@example.net"])),
        ("-r <> -F name x", Asked(recipients=["x"], sender="", full_name="name")),
        ("-N never -R hdrs -V id -XV x", Asked(recipients=["x"])),
        ("-O IgnoreDots=true -O QueueDirectory=/tmp x", Asked(recipients=["x"], dot=False)),
        ("-bm x", Asked(recipients=["x"])),
        ("-bp", Asked(mode="list")),
        ("-bs", Asked(mode="smtp")),
        ("-bi", Asked(mode="nothing")),
        ("-q", Asked(mode="nothing")),
        ("-q30m", Asked(mode="nothing")),
        ("--help", Asked(mode="help")),
        ("--server h:25 --spool=/s --flush", Asked(mode="flush", server="h:25", spool="/s")),
    ],
)
def test_options_that_programs_use_are_understood(words: str, asked: Asked) -> None:
    assert parse(words.split()) == asked


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("-bd", "-bd is not done here; allowed: -bm, -bp and -bs"),
        ("-f", "-f needs a value"),
        ("-Y x", "-Y is unknown"),
        ("--spool", "--spool needs a value"),
        ("--spool=", "--spool needs a value"),
        ("--sever h:1", '"--sever" is unknown; allowed: --server'),
    ],
)
def test_what_is_not_done_is_refused(words: str, said: str) -> None:
    with pytest.raises(NotUsable, match="^" + said.replace(".", r"\.")):
        parse(words.split())
