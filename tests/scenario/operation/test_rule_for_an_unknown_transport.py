"""test_rule_for_an_unknown_transport — smtpd started by itself accepts mail for a transport that queued.yaml lacks

Owns: such mail is deferred, doctor raises the alarm and names the rule, and its remedy delivers the mail.
See: docs/how-to/deliver/route-mail.md; operate/transports.py, by which `pillarbox up` refuses such a rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from operate.doctor.checks import Severity
from operate.doctor.whole import examine
from scripts.config_files import load_both
from tests.fixtures.daemons.submit import numbered
from tests.fixtures.database.operating import Pillarbox

if TYPE_CHECKING:
    import pytest

    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System


async def test_the_mail_waits_and_doctor_raises_the_alarm(
    system: System, books: Books, capsys: pytest.CaptureFixture[str]
) -> None:
    rule = {"id": "faxes", "if": {"recipientdomain": ["fax.example"]}, "then": {"transport": "fax"}}
    smtpd = await system.smtpd(policy={"rules": [rule]})
    await system.worker(books.sink.port, "queued")
    await books.submit(smtpd, numbered(1, ["fax.example"]), sessions=1)
    await system.until(
        "SELECT count(*) = 1 FROM queue WHERE last_error = 'transport \"fax\" does not exist in queued.yaml'"
    )

    findings = await examine(*load_both(system.folder), offline=True)
    [alarm] = [finding for finding in findings if finding.check == "mail.transport"]
    assert alarm.verdict is Severity.ALARM
    assert '"fax"; it waits until it expires; policy rules of smtpd.yaml name fax, so more will come' in alarm.found
    assert "`pillarbox queue move transport=ID --transport default`" in alarm.remedy
    pillarbox = Pillarbox(system.folder, capsys, "queue")
    await pillarbox.done("move", "transport=fax", "--transport", "default", "--yes")
    await pillarbox.done("retry", "--all", "--yes")
    await books.until_arrived(1)
