"""test_queue_verbs — each verb of `pillarbox queue`: its output and its changes

Owns: proofs about every verb that acts: preview, exact counts, audit, undo, and what a worker has in flight.
See: tests/unit/commands/test_condition_language.py for conditions; tests/scenario/ for acting while mail flows.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from psycopg.types.json import Jsonb

from operate.queue.act import Done, same_ids
from shared.errors import PillarboxError
from shared.postgres import database, timeline
from shared.postgres.queries import query
from tests.fixtures.database.plans import nodes

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.database.operating import Pillarbox


def states(factory: Factory, *ids: int) -> list[str]:
    return [
        row.state
        for row in factory.sql(
            "SELECT state FROM pillarbox.queue_state WHERE id = ANY(%(ids)s) ORDER BY id", ids=list(ids)
        )
    ]


def audit(factory: Factory) -> Any:
    return factory.sql("SELECT * FROM pillarbox.audit ORDER BY id DESC LIMIT 1")[0]


def test_without_consent_a_verb_only_says_what_it_would_do(factory: Factory, pillarbox: Pillarbox) -> None:
    held = factory.rows(3, status="HOLD")
    factory.rows(2)
    assert "3 recipients of 1 message," in pillarbox.run("release", "state=HOLD", "--dry-run")
    assert (pillarbox.status, pillarbox.said.splitlines()[-1]) == (0, "nothing was changed")
    assert "3 recipients of 1 message," in pillarbox.run("release", "state=HOLD")
    refused = (
        "pillarbox: release: nothing was changed: there is no terminal to ask at; --yes acts, --dry-run only shows\n"
    )
    assert (pillarbox.status, pillarbox.refused) == (1, refused)
    assert states(factory, *held) == ["HOLD"] * 3
    assert factory.one("SELECT count(*) FROM pillarbox.audit") == 0


def test_ids_alone_name_recipients_and_messages(factory: Factory, pillarbox: Pillarbox) -> None:
    one, two, three = factory.rows(3)
    other = factory.row()
    message, others = (str(factory.queue(each)[0].messages__id) for each in (one, other))
    assert pillarbox.json("hold", str(one), str(two), "--yes")["done"] == 2
    assert pillarbox.json("release", f"{one},{two}", "--yes")["done"] == 2
    assert pillarbox.json("hold", message, "--yes")["done"] == 3
    assert pillarbox.json("release", str(one), message.upper(), others, "--yes")["done"] == 3
    assert [each["id"] for each in pillarbox.lines("show", message)] == [one, two, three]
    assert [each["id"] for each in pillarbox.lines("list", others, str(two))] == [two, other]
    assert {each["id"] for each in pillarbox.lines("trace", message)} == {one, two, three}
    pillarbox.run("show", "x")
    assert pillarbox.refused == 'pillarbox: queue show: "x" is neither the number of a recipient nor a message id\n'


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("release", "{waiting}"), "release: {waiting} is ACTIVE; allowed: mail on hold"),
        (("hold", "{held}"), "hold: {held} is HOLD; allowed: mail that is not on hold, deleted or bounced"),
        (("delete", "{ended}"), "delete: {ended} is DELETE; allowed: mail that is not deleted or bounced"),
        (("retry", "999998,999999"), "retry: 999998,999999 not in the queue: see `pillarbox queue trace 999998`"),
    ],
)
def test_ids_that_a_verb_cannot_act_on_are_refused(
    factory: Factory, pillarbox: Pillarbox, words: tuple[str, ...], says: str
) -> None:
    ids = {"waiting": factory.row(), "held": factory.row(status="HOLD"), "ended": factory.row()}
    pillarbox.run("delete", str(ids["ended"]), "--yes")
    for consent in ((), ("--yes",), ("--dry-run",)):
        assert pillarbox.run(*(word.format(**ids) for word in words), *consent) == ""
        assert (pillarbox.status, pillarbox.refused) == (1, f"pillarbox: {says.format(**ids)}\n")
    assert factory.one("SELECT count(*) FROM pillarbox.audit") == 1


def test_at_a_terminal_nothing_is_asked_where_nothing_matches(
    factory: Factory, pillarbox: Pillarbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    factory.row()
    said = pillarbox.run("release", "state=HOLD")
    assert said.splitlines() == ["release: 0 recipients of 0 messages, 0.0 MiB", "there is nothing to do"]
    assert pillarbox.status == 0
    assert factory.one("SELECT count(*) FROM pillarbox.audit") == 0


def test_an_empty_condition_never_acts(factory: Factory, pillarbox: Pillarbox) -> None:
    factory.rows(2)
    pillarbox.run("delete", "--yes")
    assert pillarbox.status == 1
    assert "give a condition, or --all" in pillarbox.refused
    assert pillarbox.json("delete", "--all", "--yes")["done"] == 2


def test_a_typo_is_pointed_at_and_nothing_is_done(factory: Factory, pillarbox: Pillarbox) -> None:
    held = factory.row(status="HOLD")
    pillarbox.run("delete", "--yes", "state=HOLD", "recipientdomian=example.com")
    assert pillarbox.status == 64
    assert pillarbox.refused.splitlines()[-1].index("^") == 2 + len("state=HOLD ")
    assert states(factory, held) == ["HOLD"]


@pytest.mark.parametrize(
    ("words", "before", "after"),
    [
        (["hold", "state=ACTIVE"], "ACTIVE", "HOLD"),
        (["release", "state=HOLD"], "HOLD", "ACTIVE"),
        (["delay", "state=ACTIVE", "--for", "2h"], "ACTIVE", "SCHEDULED"),
        (["retry", "state=SCHEDULED"], "SCHEDULED", "ACTIVE"),
        (["bounce", "state=HOLD"], "HOLD", "BOUNCE"),
        (["delete", "state=DEFER"], "DEFER", "DELETE"),
    ],
)
def test_verbs_change_exactly_the_matching_rows(
    factory: Factory, pillarbox: Pillarbox, words: list[str], before: str, after: str
) -> None:
    waiting = timedelta(hours=1) if before in {"SCHEDULED", "DEFER"} else timedelta(seconds=-1)
    status = "HOLD" if before == "HOLD" else "DELIVER"
    ids = factory.rows(3, status=status, due=waiting, tries=int(before == "DEFER"))
    others = {"HOLD": factory.row(status="HOLD")} if before != "HOLD" else {"ACTIVE": factory.row()}
    assert states(factory, *ids) == [before] * 3
    answer = pillarbox.json(*words, "--yes", "--reason", "a test")
    assert (answer["wanted"], answer["done"], answer["skipped"]) == (3, 3, 0)
    assert states(factory, *ids) == [after] * 3
    assert states(factory, *others.values()) == list(others)
    noted = audit(factory)
    assert (noted.verb, noted.condition, noted.reason) == (words[0], words[1], "a test")
    assert (noted.wanted, noted.done, noted.skipped) == (3, 3, 0)
    assert noted.finished is not None
    assert all(body.refcount == body.counted for body in factory.bodies().values())


def test_released_mail_is_tried_at_once_but_what_waits_for_its_time_still_waits(
    factory: Factory, pillarbox: Pillarbox
) -> None:
    deferred = factory.row(status="HOLD", due=timedelta(hours=2), tries=3)
    scheduled = factory.row(status="HOLD", due=timedelta(hours=2))
    pillarbox.json("release", "state=HOLD", "--yes")
    assert states(factory, deferred, scheduled) == ["ACTIVE", "SCHEDULED"]


def test_a_copy_is_released_to_another_address_and_the_held_one_stays(factory: Factory, pillarbox: Pillarbox) -> None:
    asked = {"ret": "FULL", "envid": "id1", "notify": ["SUCCESS", "FAILURE"], "orcpt": ["rfc822", "bob@example.com"]}
    held = factory.row(status="HOLD")
    factory.sql("UPDATE pillarbox.queue SET metadata = metadata || %(dsn)s", dsn=Jsonb({"_dsn": asked}))
    pillarbox.json("release", f"id={held}", "--copy", "--to", "postmaster@elsewhere.example", "--yes")
    assert states(factory, held) == ["HOLD"]
    [copy] = [row for row in factory.queue() if row.id != held]
    assert (copy.recipientlocalpart, copy.recipientdomain) == ("postmaster", "elsewhere.example")
    assert copy.metadata["_copyof"] == str(held)
    assert copy.metadata["_dsn"] == {"notify": ["NEVER"]}  # a notice would tell the sender of this address
    assert copy.partid == factory.one(
        "SELECT pillarbox.partition_id('elsewhere.example', partitions) FROM pillarbox.settings"
    )
    [body] = factory.bodies().values()
    assert body.refcount == 2


def test_a_copy_to_the_recipient_itself_is_reported_as_its_sender_asked(factory: Factory, pillarbox: Pillarbox) -> None:
    asked = {"notify": ["SUCCESS"], "orcpt": ["rfc822", "bob@example.com"]}
    held = factory.row(status="HOLD")
    factory.sql("UPDATE pillarbox.queue SET metadata = metadata || %(dsn)s", dsn=Jsonb({"_dsn": asked}))
    pillarbox.json("release", f"id={held}", "--copy", "--yes")
    [copy] = [row for row in factory.queue() if row.id != held]
    assert copy.metadata["_dsn"] == asked


def test_claimed_rows_are_skipped_if_the_change_would_be_lost(factory: Factory, pillarbox: Pillarbox) -> None:
    ids = factory.rows(3)
    factory.lease(ids[:1], ends=timedelta(minutes=5))
    answer = pillarbox.json("priority", "--to", "5", "recipientdomain=example.com", "--yes")
    assert (answer["done"], answer["skipped"]) == (2, 1)
    assert [row.priority for row in factory.queue(*ids)] == [0, 5, 5]
    assert pillarbox.json("hold", "recipientdomain=example.com", "--yes")["done"] == 3


def test_recipients_move_to_another_transport_and_partition(factory: Factory, pillarbox: Pillarbox) -> None:
    ids = factory.rows(2, partid="1")
    queued = json.loads((pillarbox.config / "queued.yaml").read_text())
    (pillarbox.config / "queued.yaml").write_text(json.dumps({**queued, "transports": [{"id": "slow"}]}))
    pillarbox.json("move", "id=" + ",".join(map(str, ids)), "--transport", "slow", "--partition", "5", "--yes")
    assert [(row.transportid, row.partid) for row in factory.queue(*ids)] == [("slow", "5")] * 2
    assert all(body.refcount == body.counted for body in factory.bodies().values())


def test_a_command_is_undone_as_far_as_it_still_can_be(factory: Factory, pillarbox: Pillarbox) -> None:
    ids = factory.rows(4, due=timedelta(hours=1), tries=2)
    factory.sql("UPDATE pillarbox.queue SET priority = 3")
    done = pillarbox.json("hold", "tries=2", "--quarantine", "odd", "--yes")
    assert [row.metadata["_quarantineid"] for row in factory.queue(*ids)] == ["odd"] * 4
    factory.move(ids[:1], "DELETE")
    answer = pillarbox.json("undo", str(done["audit"]), "--yes")
    assert (answer["done"], answer["skipped"], answer["gone"]) == (3, 0, 1)
    assert states(factory, *ids) == ["DELETE", "DEFER", "DEFER", "DEFER"]
    assert "_quarantineid" not in factory.queue(ids[1])[0].metadata
    pillarbox.run("undo", str(done["audit"]), "--yes")
    assert "was undone" in pillarbox.refused


def test_a_bounce_has_no_undo_and_says_so(factory: Factory, pillarbox: Pillarbox) -> None:
    factory.row()
    done = pillarbox.json("bounce", "state=ACTIVE", "--yes")
    pillarbox.run("undo", str(done["audit"]), "--yes")
    assert (pillarbox.status, "cannot be undone" in pillarbox.refused) == (1, True)


def test_a_deletion_is_undone_once_while_the_body_is_kept(factory: Factory, pillarbox: Pillarbox) -> None:
    held, waiting, gone = factory.row(status="HOLD"), factory.row(), factory.row()
    factory.sql('UPDATE pillarbox.queue SET metadata = \'{"_quarantineid": "spam"}\' WHERE id = %(id)s', id=held)
    factory.sql("UPDATE pillarbox.queue SET retry_count = 2 WHERE id = %(id)s", id=waiting)
    done = pillarbox.json("delete", f"id={held},{waiting},{gone}", "--yes")
    # The body of one has been collected, and then another one has been finished by maintenance.
    factory.sql("DELETE FROM pillarbox.queue WHERE id = %(id)s", id=gone)
    factory.sql("SELECT pillarbox.maintain_sweep(now() + interval '1 h', '1 s', '1 s', 10)")
    factory.sql("SELECT * FROM pillarbox.maintain_finish(now(), 'worker', 1)")
    answer = pillarbox.json("undo", str(done["audit"]), "--yes")
    assert (answer["wanted"], answer["done"], answer["gone"]) == (3, 2, 1)
    again = {row.metadata["_requeued"]: row for row in factory.queue() if "_requeued" in (row.metadata or {})}
    assert (again[str(held)].status, again[str(held)].metadata["_quarantineid"]) == ("HOLD", "spam")
    assert (again[str(waiting)].status, again[str(waiting)].retry_count) == ("DELIVER", 2)
    assert [row.result for row in factory.archive()] == ["deleted"]
    pillarbox.run("undo", str(done["audit"]), "--yes")
    assert "was undone" in pillarbox.refused
    # A run that was cut off before its end was noted: what came back comes back no second time.
    factory.sql("UPDATE pillarbox.audit SET undone = NULL WHERE id = %(id)s", id=done["audit"])
    assert pillarbox.json("undo", str(done["audit"]), "--yes")["done"] == 0


def test_many_batches_count_exactly(factory: Factory, pillarbox: Pillarbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("operate.queue.act.BATCH", 7)
    factory.rows(50, status="HOLD")
    factory.rows(20)
    assert pillarbox.json("release", "state=HOLD", "--yes")["done"] == 50
    assert audit(factory).done == 50
    assert factory.one("SELECT count(*) FROM pillarbox.audit_rows") == 50


def test_lists_and_groups_show_every_row(factory: Factory, pillarbox: Pillarbox) -> None:
    factory.rows(3, domain="one.example", status="HOLD")
    factory.rows(2, domain="two.example", received=datetime.now(UTC) - timedelta(hours=2))
    lines = pillarbox.lines("list", "state=HOLD")
    assert [line["recipient"] for line in lines] == ["r1@one.example", "r2@one.example", "r3@one.example"]
    groups = pillarbox.lines("group", "recipientdomain,state")
    assert [(group["value"], group["recipients"]) for group in groups] == [
        ({"recipientdomain": "one.example", "state": "HOLD"}, 3),
        ({"recipientdomain": "two.example", "state": "ACTIVE"}, 2),
    ]
    total, one, two = pillarbox.lines("shape")
    assert (total["total"], one["minutes"]["5"], two["minutes"]["160"]) == (5, 3, 2)
    assert "2 matching recipients; shown: 2" in pillarbox.run("list", "age>1h")
    assert "two.example" in pillarbox.run("group", "domain")
    assert "TOTAL" in pillarbox.run("shape")
    top = pillarbox.json("top", "--times", "1")
    assert top == {"states": {"HOLD": 3, "ACTIVE": 2}, "destinations": {"one.example": 3, "two.example": 2}}
    printed = pillarbox.run("top", "--times", "2", "--every", "200ms")
    look = [["one.example", "3"], ["two.example", "2"]]
    assert [line.split()[:2] for line in printed.splitlines() if ".example" in line] == [*look, *look], "every look"


def test_a_domain_that_is_called_like_a_state_has_its_own_change(factory: Factory, pillarbox: Pillarbox) -> None:
    factory.rows(3, status="HOLD", domain="one.example")
    factory.rows(2, domain="HOLD")
    printed = pillarbox.run("top", "--times", "2", "--every", "200ms").splitlines()
    assert [line.split()[1:3] for line in printed if line.startswith("HOLD")][2:] == [["3", "+0"], ["2", "+0"]]


def test_a_recipient_is_shown_with_its_header_and_why_it_waits(factory: Factory, pillarbox: Pillarbox) -> None:
    message = factory.message(b"Subject: =?utf-8?q?gr=C3=BC=C3=9Fe?=\r\nFrom: a@b.example\r\n\r\nbody\r\n")
    waiting = factory.row(message=message, due=timedelta(hours=1), tries=1)
    answer = pillarbox.json("show", str(waiting))
    assert answer["header"] == {"From": "a@b.example", "Subject": "grüße"}
    assert re.fullmatch(r"tried 1 time; the next try is in (1h|59m\d+s)", answer["why"])
    assert "grüße" in pillarbox.run("show", str(waiting))
    pillarbox.run("show", "4711")
    assert (pillarbox.status, "is not in the queue" in pillarbox.refused) == (1, True)


def test_due_mail_that_nothing_takes_says_for_how_long_and_where_the_reason_is(
    factory: Factory, pillarbox: Pillarbox
) -> None:
    fresh, stuck = factory.row(), factory.row(due=timedelta(minutes=-5))
    assert pillarbox.json("show", str(fresh))["why"] == "due: a worker takes it as soon as it has room"
    [since, remedy] = pillarbox.json("show", str(stuck))["why"].split(": ")
    assert re.fullmatch(r"due for 5m(\d+s)?, but no worker has taken it", since)
    assert remedy == "`pillarbox doctor` says whether one serves partition 1"


def test_parked_mail_says_what_it_waits_for(factory: Factory, pillarbox: Pillarbox) -> None:
    parked = factory.row(due=timedelta(hours=1))
    factory.sql("UPDATE pillarbox.queue SET last_error = 'waiting: suspended: it moves'")
    why = pillarbox.json("show", str(parked))["why"]
    assert re.fullmatch(r"waiting: suspended: it moves; it is looked at again in (1h|59m\d+s)", why)


def test_a_trace_shows_queue_audit_and_archive(factory: Factory, pillarbox: Pillarbox) -> None:
    held = factory.row(status="HOLD")
    pillarbox.json("delete", f"id={held}", "--yes", "--reason", "spam")
    factory.sql("SELECT pillarbox.maintain_finish(now(), 'w', 10)")
    events = [line["event"] for line in pillarbox.lines("trace", str(held))]
    assert events == ["received", "delete", "deleted"]
    message = str(factory.archive()[0].messages__id)
    assert "spam" in pillarbox.run("trace", message)
    pillarbox.run("trace", "x")
    assert "neither a message id nor the number" in pillarbox.refused
    assert pillarbox.lines("audit")[0]["verb"] == "delete"
    assert "spam" in pillarbox.run("audit")


def test_a_trace_has_times_of_one_form_and_no_dash_before_nothing(factory: Factory, pillarbox: Pillarbox) -> None:
    deferred = factory.row(due=timedelta(hours=1), tries=1)
    pillarbox.json("hold", f"id={deferred}", "--yes")
    pillarbox.json("release", f"id={deferred}", "--yes")
    answer = {line["event"]: line["details"] for line in pillarbox.lines("trace", str(deferred))}
    assert re.fullmatch(r"by \S+ \(audit \d+\)", answer["hold"])
    assert re.fullmatch(r"now, next try at \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", answer["active"])
    factory.sql("UPDATE pillarbox.queue SET last_error = '451 busy', next_retry = now() + interval '1 h'")
    assert re.fullmatch(r"now, next try at \S+Z - 451 busy", pillarbox.lines("trace", str(deferred))[-1]["details"])
    pillarbox.json("delete", f"id={deferred}", "--yes")
    factory.sql("SELECT pillarbox.maintain_finish(now(), 'w', 10)")
    assert pillarbox.lines("trace", str(deferred))[-1]["details"] == "after 1 try - 451 busy"


def test_undoing_changes_back_what_the_command_changed_and_nothing_since(
    factory: Factory, pillarbox: Pillarbox
) -> None:
    ids = factory.rows(3, status="HOLD", due=timedelta(hours=1), tries=1)
    urgent = pillarbox.json("priority", "--to", "7", "--all", "--yes")["audit"]
    released = pillarbox.json("release", f"id={ids[0]},{ids[1]}", "--yes")["audit"]
    factory.lease(ids[1:2], ends=timedelta(minutes=5))
    assert pillarbox.json("undo", str(urgent), "--yes")["done"] == 2
    assert states(factory, *ids) == ["ACTIVE", "SENDING", "HOLD"]
    assert [row.priority for row in factory.queue(*ids)] == [0, 7, 0]
    answer = pillarbox.json("undo", str(released), "--yes")
    assert (answer["done"], answer["skipped"], answer["gone"]) == (1, 1, 0)
    assert states(factory, *ids) == ["HOLD", "SENDING", "HOLD"]
    assert factory.queue(ids[0])[0].next_retry > datetime.now(UTC) + timedelta(minutes=50)


def test_a_due_time_does_not_come_back_after_another_try(factory: Factory, pillarbox: Pillarbox) -> None:
    tried, untried = factory.rows(2, due=timedelta(hours=1), tries=1)
    audit_ = pillarbox.json("delay", "--for", "5h", "--all", "--yes")["audit"]
    factory.sql("UPDATE pillarbox.queue SET retry_count = 2 WHERE id = %(id)s", id=tried)
    assert pillarbox.json("undo", str(audit_), "--yes")["done"] == 2
    later = datetime.now(UTC) + timedelta(hours=2)
    assert [row.next_retry > later for row in factory.queue(tried, untried)] == [True, False]


def test_undoing_a_hold_takes_its_reason_back_too(factory: Factory, pillarbox: Pillarbox) -> None:
    one = factory.row()
    held = pillarbox.json("hold", "--all", "--quarantine", "odd", "--reason", "why not", "--yes")["audit"]
    assert factory.queue(one)[0].metadata["_holdreason"] == "why not"
    pillarbox.json("undo", str(held), "--yes")
    assert factory.queue(one)[0].metadata == {"_partid": "1"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["list", "last_error~\udcff"], "not UTF-8, or NUL"),
        (["list", "id=99999999999999999999"], "is not a valid number"),
        (["show", "99999999999999999999"], "is neither the number of a recipient"),
        (["trace", "²"], "neither a message id nor the number"),
        (["release", "id=1", "--to", "a@b.example", "--yes"], "--to requires --copy"),
    ],
)
def test_impossible_arguments_are_refused_in_a_few_lines(pillarbox: Pillarbox, words: list[str], said: str) -> None:
    pillarbox.run(*words)
    assert pillarbox.status in {1, 64}
    assert said in pillarbox.refused
    assert "Traceback" not in pillarbox.refused


@pytest.mark.parametrize(
    "words",
    [
        ["top", "--every", "soon"],
        ["hold", "--all", "--reason", "\udcff"],
        ["release", "--all", "--copy", "--to", "nobody"],
        ["release", "--all", "--copy", "--to", "audit@☃.example"],
    ],
)
def test_an_impossible_option_is_refused(pillarbox: Pillarbox, words: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        pillarbox.run(*words)
    assert refused.value.code == 2


async def test_the_reader_may_close_the_pipe_early(factory: Factory, pillarbox: Pillarbox) -> None:
    factory.rows(5000)
    process = await pillarbox.start("list", "--limit", "5000")
    assert process.stdout
    assert process.stderr
    await process.stdout.readline()
    process._transport.get_pipe_transport(1).close()  # type: ignore[attr-defined]
    assert await process.wait() == 141
    assert await process.stderr.read() == b""


def test_mail_already_due_has_a_wait_of_zero(factory: Factory, pillarbox: Pillarbox) -> None:
    factory.rows(2, due=timedelta(hours=-1))
    factory.row(due=timedelta(hours=1))
    assert pillarbox.json("delete", "wait=0s", "--yes")["done"] == 2


def test_undo_does_not_touch_a_new_row_with_an_old_id(factory: Factory, pillarbox: Pillarbox) -> None:
    """A standby that lagged has given the ids again: what was held then is not what is held now."""
    factory.rows(3)
    done = pillarbox.json("hold", "--all", "--yes")
    factory.sql("DELETE FROM pillarbox.queue")
    factory.sql("SELECT setval('pillarbox.queue_id_seq', 1, false)")
    again = factory.rows(3, status="HOLD")
    answer = pillarbox.json("undo", str(done["audit"]), "--yes")
    assert (answer["done"], answer["skipped"]) == (0, 0)
    assert states(factory, *again) == ["HOLD"] * 3


async def test_a_command_stops_when_the_timeline_changes(factory: Factory) -> None:
    connection = await database.connect(factory.uri, "operator")
    try:
        await same_ids(connection, Done(1, 9, timeline=await timeline.current(connection)))
        with pytest.raises(PillarboxError, match="another server has taken over"):
            await same_ids(connection, Done(1, 9, timeline="7/00000001"))
    finally:
        await connection.close()


def test_an_empty_queue_is_said_in_words(pillarbox: Pillarbox) -> None:
    for words in (("group", "state"), ("shape",)):
        assert pillarbox.run(*words) == "0 matching recipients\n"
        assert pillarbox.lines(*words) == []
    assert pillarbox.run("audit") == "no commands\n"


def test_undoing_a_batch_reads_that_batch_and_not_the_whole_command(factory: Factory, pillarbox: Pillarbox) -> None:
    """By statistics from before the command: undoing 20,000 took 17 s where the command took 2."""
    for table in ("audit_rows", "queue_def_123"):
        factory.sql(f"ALTER TABLE pillarbox.{table} SET (autovacuum_enabled = off)")
    factory.rows(300)
    pillarbox.json("priority", "--to", "6", "--all", "--yes")
    for table in ("audit_rows", "queue"):
        factory.sql(f"ANALYZE pillarbox.{table}")
    ids = factory.rows(3000)
    done = pillarbox.json("priority", "--to", "5", "--all", "--yes")
    text = "EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) " + query("queue_restore")
    [[[plan]]] = factory.sql(text, ids=ids[:500], undoes=done["audit"])
    [found] = [node for node in nodes(plan["Plan"]) if node.get("Relation Name") == "audit_rows"]
    removed = sum(value for name, value in found.items() if name.startswith("Rows Removed"))
    assert plan["Plan"]["Actual Rows"] == 500
    assert (found["Actual Rows"] + removed) * found["Actual Loops"] == 500


async def test_output_that_cannot_be_written_is_an_error_in_one_line(factory: Factory, pillarbox: Pillarbox) -> None:
    factory.rows(1)
    with open("/dev/full", "wb") as full:  # noqa: ASYNC230, PTH123 - no file is behind it
        process = await pillarbox.start("list", stdout=full)
    assert process.stderr
    said = await process.stderr.read()
    assert (await process.wait(), said) == (
        74,
        b"pillarbox: standard output cannot be written: No space left on device\n",
    )
