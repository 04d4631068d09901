"""tracing — the section `tracing` of both files

Owns: the destination of spans, and how many messages are followed.
Guarantees: without `endpoint` nothing is traced, and no package for it is needed.
See: docs/how-to/observe/trace-a-message.md; https://opentelemetry.io/docs/specs/otlp/
"""

from typing import Annotated

from shared.config.fields import Fraction, Interval, Section, setting, url_matching

Endpoint = Annotated[
    str, url_matching(r"https?://[!-~]+", "an http or https URL, such as http://127.0.0.1:4318/v1/traces")
]


class Tracing(Section):
    """Spans that follow a message through both daemons."""

    endpoint: Endpoint | None = setting(
        None,
        "Where spans are sent, by OTLP over HTTP; it needs the extra pillarbox[tracing] (OpenTelemetry "
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT).",
        unit="URL",
        absent="off",
    )
    ratio: Fraction = setting(
        1.0,
        "The fraction of messages whose spans are sent; queued keeps smtpd's decision (OpenTelemetry "
        "OTEL_TRACES_SAMPLER_ARG).",
        unit="fraction from 0 to 1",
    )
    timeout: Interval = setting(
        "5s", "How long the collector may take to accept spans; also for the last ones at stop.", unit="duration"
    )
