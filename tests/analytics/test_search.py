"""test-search — `pillarbox analytics search` finds in the lake what the same condition finds in PostgreSQL's archive"""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from pyarrow import parquet

from operate.condition.compile import compiled
from operate.shapes.mail import Finished
from scripts.analytics.lake import catalog
from scripts.analytics.lake.faults import LakeFault
from scripts.analytics.search import matching, scan
from shared.config.condition.tree import ConditionError
from tests.fixtures.analytics.lake import ask, files, today

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

_NOW = datetime.now(UTC)
_ANY = 10**6


def found(lake: Path, *words: str, limit: int = _ANY, **days: Any) -> list[dict[str, Any]]:
    """The rows that the condition finds."""
    wanted = matching.condition(words)
    table = catalog.opened(str(lake)).needed("archive")
    return scan.newest(table, matching.expression(wanted, _NOW), matching.columns(wanted), limit, **days)


def held(uri: str, *words: str) -> list[int]:
    """The ids that the same condition has in PostgreSQL's archive, of closed days, the newest first."""
    sql = compiled(matching.condition(words), _NOW)
    with psycopg.connect(uri) as connection:
        rows = connection.execute(
            f"SELECT q.id FROM pillarbox.archive q WHERE ({sql.text}) AND q.finished < %(today)s"  # noqa: S608 - ours
            " ORDER BY q.finished DESC, q.id DESC".encode(),
            sql.values | {"today": datetime.combine(today(), datetime.min.time(), UTC)},
        ).fetchall()
    return [row[0] for row in rows]


def test_a_condition_finds_in_the_lake_what_it_finds_in_postgresql(history_database: str, exported_lake: Path) -> None:
    conditions = (
        ["recipientdomain=d3.example"],
        ["recipientdomain=d*", "not", "senderdomain~SENDER1"],
        ["sender=news@sender1.example", "or", "sender=@sender2.example"],
        ["sender!=news@*"],
        ["recipient~R1"],
        ["last_error="],
        ["last_error!=", "size>2KiB"],
        ["last_error!~mailbox"],
        ["jobid!=x"],
        ["age<36h", "retry_count=2..4"],
        ["priority=-1"],
        [f"ts={today() - timedelta(days=1)}"],
        ["(", "transport=bulk", "or", "senderip=203.0.113.4", ")", "not", "retry_count=1"],
    )
    for words in conditions:
        there = held(history_database, *words)
        assert there, words
        assert [row["id"] for row in found(exported_lake, *words)] == there, words


def test_mail_is_found_by_message_id_subject_and_ids(history_database: str, exported_lake: Path) -> None:
    row = ask(history_database, "SELECT to_jsonb(a) FROM pillarbox.archive a ORDER BY finished LIMIT 1")

    for words in (f"<{row['msgid']}>", f"msgid={row['msgid']}", row["messages__id"], str(row["id"])):
        assert row["id"] in [each["id"] for each in found(exported_lake, words)], words
    assert {each["subject"] for each in found(exported_lake, f"subject~{row['subject'].upper()}")} == {row["subject"]}
    assert found(exported_lake, "<nobody@nowhere.example>") == []


def test_the_newest_are_found_and_days_are_left_out(history_database: str, exported_lake: Path) -> None:
    every = found(exported_lake, "size>0")
    assert found(exported_lake, "size>0", limit=7) == every[:7]
    oldest = min(row["finished"] for row in every).date()
    of_day = found(exported_lake, "size>0", since=oldest, until=oldest)
    assert of_day == [row for row in every if row["finished"].date() == oldest] != every
    assert held(history_database, "size>0") == [row["id"] for row in every]


def test_row_groups_that_cannot_have_the_row_are_not_read(exported_lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their octets are overwritten: they would be an error."""
    oldest = found(exported_lake, "size>0")[-1]
    for file in files(exported_lake, "archive"):
        group = parquet.read_metadata(file).row_group(0)
        [ids] = [group.column(n) for n in range(group.num_columns) if group.column(n).path_in_schema == "id"]
        if not ids.statistics.min <= oldest["id"] <= ids.statistics.max:
            octets = bytearray(file.read_bytes())
            octets[4 : group.column(group.num_columns - 1).data_page_offset] = bytes(
                group.column(group.num_columns - 1).data_page_offset - 4
            )
            file.write_bytes(octets)

    assert [row["id"] for row in found(exported_lake, f"id={oldest['id']}")] == [oldest["id"]]
    with pytest.raises(LakeFault, match="restore it, or export the day again"):
        found(exported_lake, "size>0")


def test_what_finished_mail_cannot_answer_is_refused() -> None:
    with pytest.raises(ConditionError, match="state: finished mail in the lake does not have it; allowed: id, message"):
        matching.condition(["state=HOLD"])


def test_the_command_prints_a_table_or_json(history_database: str, exported_lake: Path) -> None:
    msgid = ask(history_database, "SELECT msgid FROM pillarbox.archive ORDER BY finished LIMIT 1")

    def run(*words: str) -> str:
        command = [sys.executable, "-m", "scripts.cli", "analytics", "search", "--lake", str(exported_lake), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    rows = [json.loads(line) for line in run(f"<{msgid}>", "--json").splitlines()]
    assert [row["msgid"] for row in rows] == [msgid]
    Finished.model_validate_json(json.dumps(rows[0]))
    table = run(f"<{msgid}>").splitlines()
    assert rows[0]["recipient"] in table[1]
    assert run("size>0", "--limit", "2").splitlines()[-1] == "there is more: --limit 2"
    assert run("size<0") == "the lake has no finished mail that fits\n"
