"""test_suspends — doctor says that mail is suspended, why, and how it goes on

Owns: proofs about the check mail.suspended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from operate.doctor.checks import Severity
from operate.doctor.suspends import suspended
from shared.config.queued.pacing import Pacing

if TYPE_CHECKING:
    from tests.fixtures.database.examined import Patient
    from tests.fixtures.database.factory import Factory


async def test_suspended_mail_is_reported_with_the_reason_and_the_way_out(patient: Patient, factory: Factory) -> None:
    assert (await patient.about("mail.suspended"))[0].verdict is Severity.OK
    suspend = (
        "INSERT INTO pillarbox.suspends (selection, reason) VALUES (%(selection)s::jsonb, %(reason)s) RETURNING id"
    )
    factory.sql(suspend, selection='{"destination": ["example.com"]}', reason="it moves")
    [finding] = await patient.about("mail.suspended")
    assert finding.verdict is Severity.NOTE
    assert finding.found == "suspended: destination example.com (suspend 1: it moves)"
    factory.sql(suspend, selection="{}", reason="a blocklist")
    [finding] = await patient.about("mail.suspended")
    assert finding.verdict is Severity.WARN
    assert finding.found.endswith("all mail (suspend 2: a blocklist)")
    assert finding.remedy == "to let it go: `pillarbox suspend remove 2`"


def test_suspends_of_the_file_are_reported_too() -> None:
    pacing = Pacing.model_validate({"suspends": [{"match": {}, "reason": "not yet"}]})
    finding = suspended([], pacing.suspends)
    assert (finding.verdict, finding.found) == (Severity.WARN, "suspended: all mail (pacing.suspends[0]: not yet)")
    assert finding.remedy == "to let it go: remove pacing.suspends[0] from queued.yaml and reload queued"
