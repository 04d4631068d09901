"""feedback — how many connections a destination gets, and when it gets none, in queued.yaml

Owns: the section `feedback` of a transport.
Guarantees: defaults are Postfix's, except that feedback is one connection for each round of connections and not for
    each attempt, which is what Postfix advises where `concurrency` is large.
See: Postfix SCHEDULER_README; postconf(5): default_destination_concurrency_positive_feedback and its neighbours;
    docs/explanation/pacing.md, "Feedback".
"""

from typing import Annotated, Literal

from shared.config.fields import Interval, Section, setting, whole

#: How much one attempt counts: a whole connection, or so much that as many attempts as there are connections make one.
Step = Literal["1", "1/concurrency", "1/sqrt_concurrency"]


class Feedback(Section):
    """How the connections to a destination grow and shrink with the outcome of attempts."""

    initial: Annotated[int, whole(1, 10_000)] = setting(
        5,
        "The number of connections a destination starts with, at most `concurrency` (Postfix "
        "initial_destination_concurrency).",
        unit="connections",
    )
    positive: Step = setting(
        "1/concurrency",
        "How much an attempt that reached the destination adds, up to `concurrency` (Postfix "
        "default_destination_concurrency_positive_feedback).",
        unit="word",
    )
    negative: Step = setting(
        "1/concurrency",
        "How much an attempt that failed by the destination's fault subtracts, down to one (Postfix "
        "default_destination_concurrency_negative_feedback).",
        unit="word",
    )
    cohorts: Annotated[int, whole(0, 1_000)] = setting(
        1,
        "A destination is dead after this many cohorts of consecutive failures, a cohort being as many attempts as it "
        "may have connections; 0 means never (Postfix default_destination_concurrency_failed_cohort_limit).",
        unit="cohorts",
    )
    dead: Interval | None = setting(
        None,
        "How long a dead destination is left alone before one attempt tests it (Postfix minimal_backoff_time).",
        unit="duration",
        absent="the first of retry.intervals",
    )
    longest: Interval = setting(
        "15m",
        "The longest such wait: it doubles with each attempt that finds the destination still dead (Postfix "
        "maximal_backoff_time).",
        unit="duration",
    )
