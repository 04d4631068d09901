"""test_spool_health — when new messages are refused, and when they are accepted again

Owns: examples for shared/spool/health.py.
"""

from __future__ import annotations

from shared.spool.health import Health


def health(committers: int = 2, limit: float = 10.0) -> Health:
    made = Health(limit)
    made.committers = committers
    return made


def test_without_commits_there_is_no_trouble() -> None:
    assert health().trouble(0.0) is None
    assert health(0).trouble(0.0) is None


def test_an_outage_is_trouble_until_a_commit_succeeds() -> None:
    known = health()
    known.begin("a", 0.0)
    known.failed("a", "gone")
    assert str(known.trouble(0.0)) == "gone"
    known.begin("a", 1.0)
    assert known.trouble(1.0) is not None
    known.succeeded("a")
    assert known.trouble(1.0) is None


def test_a_refused_message_is_no_trouble() -> None:
    known = health()
    known.begin("a", 0.0)
    known.ended("a")
    assert known.trouble(100.0) is None


def test_the_first_probe_is_immediate_and_later_ones_rarer() -> None:
    known = health()
    pauses = []
    for _ in range(9):
        known.failed("a", "gone")
        pauses.append(known.pause)
    assert pauses == [0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0]
    known.succeeded("a")
    known.failed("a", "gone again")
    assert known.pause == 0.0


def test_commits_that_hang_are_trouble_once_all_committers_are_busy() -> None:
    known = health()
    known.begin("a", 0.0)
    assert known.trouble(100.0) is None  # the other committer may be quick
    known.begin("b", 5.0)
    assert known.trouble(15.0) is None
    assert known.trouble(15.1) is not None
    known.succeeded("a")
    assert known.trouble(15.1) is None
