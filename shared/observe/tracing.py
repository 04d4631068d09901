"""tracing — spans that follow a message from RCPT to its last reply, through both daemons

Owns: the way to OpenTelemetry; which span is the current one; the text that carries a trace between the daemons.
Guarantees: free when it is off: one comparison for each call, and the package is not even imported. A slow or failing
    collector delays no mail: spans go out in a thread of their own, at most _QUEUED wait, and further ones are
    dropped. A text that is not a trace context begins a new trace.
Raises: ConfigError from `setup` when the package is not installed.
See: https://www.w3.org/TR/trace-context/ (traceparent); docs/how-to/observe/trace-a-message.md
"""

from __future__ import annotations

import asyncio
import logging
from contextvars import ContextVar
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Self

from shared.errors import ConfigError
from shared.observe import events

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter

    from shared.config.tracing import Tracing

#: The reserved key of queue.metadata that carries the trace context.
KEY: Final = "_traceparent"
_QUEUED: Final = 4096  # spans that wait to be sent
_QUIET: Final = 60.0  # seconds between two events about a collector that takes nothing


class Span:
    """Something that takes time, for one message; as a context it is the current one, and ends with the block."""

    __slots__ = ("_before", "_span")

    def __init__(self, span: Any = None) -> None:
        self._span = span
        self._before: Any = None

    def __bool__(self) -> bool:
        """Whether anybody will see it."""
        return self._span is not None

    @property
    def traceparent(self) -> str | None:
        """Its context as W3C has it; None when tracing is off."""
        if self._span is None:
            return None
        context = self._span.get_span_context()
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"

    def set(self, attributes: Mapping[str, object]) -> None:
        """What is known of it."""
        if self._span is not None:
            self._span.set_attributes(_plain(attributes))

    def end(self) -> None:
        """It is over; a second call does nothing."""
        if self._span is not None:
            self._span.end()

    def __enter__(self) -> Self:
        if self._span is not None:
            self._before = _CURRENT.set(self._span)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if self._span is not None:
            if kind is not None:
                self._span.set_attributes({"error.type": kind.__name__})
            _CURRENT.reset(self._before)
            self._span.end()


OFF: Final = Span()
_CURRENT: ContextVar[Any] = ContextVar("span", default=None)


class _State:
    """The tracer that `setup` made, and how to end it. None: off."""

    tracer: Any = None
    remote: Callable[[str], Any] | None = None
    end: Callable[[], None] | None = None


def setup(settings: Tracing, service: str, instance: str) -> None:
    """Begin as `settings` say; does nothing without an endpoint. `service`: smtpd or queued; `instance`: which one."""
    if settings.endpoint is None:
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - an extra
    except ImportError:
        raise ConfigError(
            "tracing.endpoint: spans need OpenTelemetry, which is not installed; allowed: none, or in the checkout: "
            ".venv/bin/pip install -c constraints.txt -e '.[tracing]'"
        ) from None
    # Its own words about a collector that is away are a traceback each; tracing.failed says it once a minute.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    timeout = settings.timeout.total_seconds()
    exporter = OTLPSpanExporter(endpoint=settings.endpoint, timeout=timeout)
    begin_with(_ReportingExporter(exporter), settings, f"pillarbox {service}", instance)


def begin_with(exporter: Any, settings: Tracing, service: str, instance: str) -> None:
    """Begin, with the spans going to this SpanExporter of OpenTelemetry."""
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - as above
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased  # noqa: PLC0415
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

    provider = TracerProvider(
        sampler=ParentBased(TraceIdRatioBased(settings.ratio)),
        resource=Resource.create({"service.name": service, "service.instance.id": instance}),
        shutdown_on_exit=False,
    )
    timeout = int(settings.timeout.total_seconds() * 1000)
    provider.add_span_processor(
        BatchSpanProcessor(exporter, max_queue_size=_QUEUED, export_timeout_millis=timeout, schedule_delay_millis=1000)
    )
    propagator = TraceContextTextMapPropagator()

    def end() -> None:
        provider.force_flush(timeout)
        provider.shutdown()

    _State.remote = lambda text: propagator.extract({"traceparent": text})
    _State.end = end
    _State.tracer = provider.get_tracer("pillarbox")


async def close() -> None:
    """Send what is left and end; at most about `tracing.timeout`."""
    end, _State.end, _State.tracer = _State.end, None, None
    if end is not None:
        await asyncio.to_thread(end)


def on() -> bool:
    """Whether anything is traced."""
    return _State.tracer is not None


def begin(
    name: str, attributes: Mapping[str, object] | None = None, *, parent: object = None, at: int | None = None
) -> Span:
    """A span that begins now, or began `at` nanoseconds of time.time_ns(); below `parent`, a traceparent.

    Without `parent` it is below the current span; without that it begins a trace.
    """
    tracer = _State.tracer
    if tracer is None:
        return OFF
    return Span(tracer.start_span(name, _context(parent), start_time=at, attributes=_plain(attributes or {})))


def event(name: str, attributes: Mapping[str, object]) -> None:
    """Something that happened in the current span, at this moment."""
    if _State.tracer is None:
        return
    span = _CURRENT.get()
    if span is not None:
        span.add_event(name, _plain(attributes))


def _context(parent: object) -> Any:
    from opentelemetry.context import Context  # noqa: PLC0415 - as above
    from opentelemetry.trace import set_span_in_context  # noqa: PLC0415

    if isinstance(parent, str) and _State.remote is not None:
        return _State.remote(parent)
    current = _CURRENT.get()
    return Context() if current is None else set_span_in_context(current, Context())


def _plain(attributes: Mapping[str, object]) -> dict[str, str | int | float | bool]:
    """Values OpenTelemetry takes; None is left out."""
    return {
        name: value if isinstance(value, str | int | float | bool) else str(value)
        for name, value in attributes.items()
        if value is not None
    }


class _ReportingExporter:
    """An exporter whose failures are an event; it is asked in a thread of OpenTelemetry's (a SpanExporter)."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._loop = asyncio.get_running_loop()
        self._said = -_QUIET

    def export(self, spans: Sequence[ReadableSpan]) -> object:
        """As SpanExporter has it."""
        try:
            result = self._exporter.export(spans)
        except Exception as error:  # noqa: BLE001 - no mail waits for an exporter
            self._failed(len(spans), repr(error))
            return None
        if result.value:
            self._failed(len(spans), "the collector did not take them")
        return result

    def shutdown(self) -> None:
        """As SpanExporter has it."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """As SpanExporter has it."""
        return self._exporter.force_flush(timeout_millis)

    def _failed(self, spans: int, error: str) -> None:
        if monotonic() - self._said < _QUIET or self._loop.is_closed():
            return
        self._said = monotonic()
        self._loop.call_soon_threadsafe(lambda: events.emit("tracing.failed", spans=spans, error=error))
