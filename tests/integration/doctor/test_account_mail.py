"""test_account_mail — doctor says that account mail waits, that no collector runs, and which template fails

Owns: proofs about the checks account.mail, account.collector and account.tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from collect.queue import Queue
from operate.doctor.checks import Severity
from shared.postgres import account_schema
from tests.fixtures.database.accounts import Accounts, aged
from tests.fixtures.waiting import eventually
from tests.integration.accounts.test_collect_queue import collecting, composer, folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fixtures.database.examined import Patient


@pytest.fixture
def accounts(patient: Patient, tmp_path: Path) -> Iterator[Accounts]:
    """Accounts beside the patient's queue, and a collect.yaml for them."""
    account_schema.install(patient.uri, "accounts")
    (tmp_path / "key").write_text("cafebabe" * 8)
    (tmp_path / "key").chmod(0o600)
    patient.collect = {
        "enabled": True,
        "environment": {"database": {"uri": patient.uri}},
        "accounts": {"schema": "accounts"},
        "keys": [{"id": "k", "file": str(tmp_path / "key")}],
        "mail": {
            "sender": "accounts@example.com",
            "activate": "https://example.com/activate?token={token}",
            "recover": "https://example.com/recover?token={token}",
        },
    }
    made = Accounts(patient.uri, "accounts")
    yield made
    made.connection.close()


async def found(patient: Patient, check: str) -> tuple[Severity, str]:
    [finding] = await patient.about(check)
    assert bool(finding.remedy) or finding.verdict < Severity.WARN
    return finding.verdict, finding.found


async def test_without_a_collector_nothing_is_asked(patient: Patient) -> None:
    for check in ("account.mail", "account.collector", "account.tokens"):
        assert await found(patient, check) == (Severity.OK, "collect.yaml asks for no collector")


async def test_tokens_that_wait_are_a_warning_after_a_minute_and_an_alarm_after_five(
    patient: Patient, accounts: Accounts
) -> None:
    assert await found(patient, "account.tokens") == (Severity.OK, "none waits")
    accounts.add("one")
    accounts.add("two")
    accounts.sql("UPDATE accounts SET status = 'suspended' WHERE login = 'two'")  # its token is not due
    assert (await found(patient, "account.tokens"))[0] is Severity.OK
    aged(accounts, 120)
    verdict, text = await found(patient, "account.tokens")
    assert verdict is Severity.WARN
    assert text.startswith("1 token for activation, the first for 2m")
    aged(accounts, 240)
    assert (await found(patient, "account.tokens"))[0] is Severity.ALARM
    aged(accounts, 3600)
    assert await found(patient, "account.tokens") == (Severity.NOTE, "in the last day 1 token expired uncollected")


async def test_a_token_waits_from_the_moment_its_account_was_unsuspended(patient: Patient, accounts: Accounts) -> None:
    accounts.add("one")
    accounts.sql("UPDATE accounts SET status = 'suspended'")
    aged(accounts, 400)
    accounts.sql("UPDATE accounts SET status = 'provisioned'")
    assert (await found(patient, "account.tokens"))[0] is Severity.OK


async def test_the_collector_that_runs_and_its_position_are_named(patient: Patient, accounts: Accounts) -> None:
    verdict, text = await found(patient, "account.collector")
    assert (verdict, text) == (Severity.WARN, "no collector is connected; no token was collected yet")
    patient.collect["enabled"] = False
    assert (await found(patient, "account.collector"))[0] is Severity.NOTE
    accounts.add("one")
    async with collecting(patient.uri, "accounts", Queue(composer())):
        await eventually(lambda: accounts.one("SELECT collected_at IS NOT NULL FROM tokens"), "it is collected")

        async def listens() -> bool:
            return (await found(patient, "account.collector"))[0] is Severity.OK

        await eventually(listens, "the collector is seen")
        _, text = await found(patient, "account.collector")
        assert text.startswith("1 collector; the last token that was collected is 1, ")


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ({"keys": [{"id": "k", "environment": "NOT_SET"}]}, "keys: k: the environment variable NOT_SET is not set"),
        ({}, "en/activation.txt: 'nowhere' is undefined"),
    ],
)
async def test_keys_and_templates_that_cannot_be_used_are_an_alarm(
    patient: Patient, accounts: Accounts, tmp_path: Path, broken: dict[str, Any], said: str
) -> None:
    del accounts
    assert await found(patient, "account.mail") == (Severity.OK, "1 key; templates in en")
    (tmp_path / "texts").mkdir()
    texts = folder(tmp_path / "texts", "Welcome")
    (texts / "en" / "activation.txt").write_text("{{ nowhere }}")
    patient.collect |= broken or {"mail": {**patient.collect["mail"], "templates": str(texts)}}
    verdict, text = await found(patient, "account.mail")
    assert verdict is Severity.ALARM
    assert said in text


async def test_accounts_that_are_not_there_are_an_alarm(patient: Patient, accounts: Accounts) -> None:
    del accounts
    patient.collect["accounts"] = {"schema": "nowhere"}
    verdict, text = await found(patient, "account.tokens")
    assert verdict is Severity.ALARM
    assert "has no accounts in schema nowhere" in text
    patient.collect["accounts"] = {"uri": "postgresql://127.0.0.1:1/none"}
    assert (await found(patient, "account.tokens"))[0] is Severity.ALARM
