"""test_upkeep — doctor reports work that workers cannot do because a transport or a right is missing

Owns: the checks mail.transport, leaf.vacuum and the index of lost mail.
See: test_faults.py for the other faults of tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from operate.doctor.checks import Severity

if TYPE_CHECKING:
    from tests.fixtures.database.examined import Patient
    from tests.fixtures.database.logins import Logins


async def test_mail_for_an_unknown_transport_is_reported(patient: Patient) -> None:
    patient.factory.rows(2, partid="1")
    patient.factory.rows(3, partid="4", transportid="fax")
    patient.factory.rows(1, partid="4", transportid="fax", status="HOLD")
    patient.factory.rows(1, partid="4", transportid="telex", status="BOUNCE")  # it will not be sent
    finding = await patient.worst("mail.transport")
    assert finding.verdict is Severity.ALARM
    assert '4 recipients by "fax"; it waits' in finding.found
    assert "telex" not in finding.found
    patient.factory.sql("UPDATE pillarbox.queue SET transportid = 'default'")
    assert (await patient.worst("mail.transport")).verdict is Severity.OK


async def test_a_rule_with_an_unknown_transport_is_reported(patient: Patient) -> None:
    rule = {"id": "faxes", "if": {"recipientdomain": ["fax.example"]}, "then": {"transport": "fax"}}
    patient.smtpd = {"policy": {"rules": [rule]}}
    finding = await patient.worst("mail.transport")
    assert finding.verdict is Severity.WARN
    assert "policy rules of smtpd.yaml name fax, which queued.yaml lacks" in finding.found


async def test_a_role_that_may_not_vacuum_is_reported(patient: Patient, logins: Logins) -> None:
    assert (await patient.worst("leaf.vacuum")).verdict is Severity.OK
    finding = await patient.worst("leaf.vacuum", logins.uri("queued"))
    assert finding.verdict is Severity.NOTE
    assert "queue_def_123" in finding.found
    assert "autovacuum alone" in finding.found
    if patient.factory.one("SELECT current_setting('server_version_num')::integer") >= 170000:
        patient.factory.sql("GRANT MAINTAIN ON ALL TABLES IN SCHEMA pillarbox TO pillarbox_queued")
        assert (await patient.worst("leaf.vacuum", logins.uri("queued"))).verdict is Severity.OK


async def test_a_missing_index_of_lost_mail_is_reported(patient: Patient) -> None:
    patient.factory.sql("DROP INDEX pillarbox.queue_suspect")
    finding = await patient.worst("leaf.indexes")
    assert finding.verdict is Severity.ALARM
    assert "queue_suspect" in finding.found
