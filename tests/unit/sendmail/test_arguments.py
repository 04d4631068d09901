"""test_arguments — the command lines by which programs call sendmail"""

from __future__ import annotations

import re

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
        ("-N never -R hdrs -V a+b x", Asked(recipients=["x"], notify="NEVER", returned="HDRS", envid="a+2Bb")),
        ("-N success,delay -Rfull x", Asked(recipients=["x"], notify="SUCCESS,DELAY", returned="FULL")),
        # -e, -o and -b have a value, which may be the next word. The q of -eq is one: it does not run the queue.
        ("-o i -e q -b m x", Asked(recipients=["x"], dot=False)),
        ("-eq -ep -em -X /var/log/mail x", Asked(recipients=["x"])),
        ("-q30m -q1h x", Asked(recipients=["x"])),
        ("-O IgnoreDots=true -O QueueDirectory=/tmp x", Asked(recipients=["x"], dot=False)),
        ("-bm x", Asked(recipients=["x"])),
        ("-bp", Asked(mode="list")),
        ("-bs", Asked(mode="smtp")),
        ("-bi", Asked(mode="nothing")),
        ("-q", Asked(mode="nothing")),
        ("-qRexample.com", Asked(mode="nothing")),
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
        ("-q x", "-bi, -bp, -bs, -q and --flush take no message for a recipient; allowed with them: no address, no -t"),
        ("-bi -t", "-bi, -bp, -bs, -q and --flush take no message"),
        ("-bp x", "-bi, -bp, -bs, -q and --flush take no message"),
        ("-bs -t", "-bi, -bp, -bs, -q and --flush take no message"),
        (
            "-N never,success x",
            '-N "never,success" is unknown; allowed: never, or a list of success, failure and delay',
        ),
        ("-R body x", '-R "body" is unknown; allowed: full and hdrs'),
        ("-V \u00e4 x", '-V "\u00e4" is not usable; allowed: printable ASCII, 100 characters in xtext'),
        ("-XV x", "-XV (VERP) is not done here"),
        ("-XV+= x", "-XV+= (VERP) is not done here"),
        ("-O REQUIRETLS=yes x", "-O REQUIRETLS=yes is not done here: smtpd takes it over TLS only"),
        ("--sever h:1", '"--sever" is unknown; allowed: --server'),
    ],
)
def test_what_is_not_done_is_refused(words: str, said: str) -> None:
    with pytest.raises(NotUsable, match="^" + re.escape(said)):
        parse(words.split())
