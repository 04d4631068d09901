"""test_tracing — tracing costs nothing when it is off, reports missing packages, and carries a trace in one line

Owns: proofs about shared/observe/tracing.py without daemons.
See: https://www.w3.org/TR/trace-context/#traceparent-header
"""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from shared.config.tracing import Tracing
from shared.errors import ConfigError
from shared.observe import tracing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ENDPOINT = "http://127.0.0.1:1/v1/traces"
PARENT = f"00-{'a' * 32}-{'b' * 16}-01"


@pytest.fixture
async def exporter() -> AsyncIterator[InMemorySpanExporter]:
    """Where the spans of this test end."""
    kept = InMemorySpanExporter()
    tracing.begin_with(kept, Tracing(endpoint=ENDPOINT), "test", "one")
    yield kept
    await tracing.close()


async def spans(exporter: InMemorySpanExporter) -> dict[str, Any]:
    await tracing.close()
    return {span.name: span for span in exporter.get_finished_spans()}


def test_without_an_endpoint_opentelemetry_is_not_imported() -> None:
    code = (
        "import sys, smtpd.daemon, queued.daemon\n"
        "from shared.observe import tracing; from shared.config.tracing import Tracing\n"
        "tracing.setup(Tracing(), 'smtpd', 'one')\n"
        "with tracing.begin('x', {'a': 1}) as span: tracing.event('y', {}); span.set({'b': 2})\n"
        "assert not span and span.traceparent is None\n"
        "assert not [name for name in sys.modules if name.split('.')[0] == 'opentelemetry']"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_endpoint_without_the_package_is_a_configuration_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(ConfigError, match=r"^tracing\.endpoint: .*; allowed: none, or in the checkout: .venv/bin/pip"):
        tracing.setup(Tracing(endpoint=ENDPOINT), "smtpd", "one")
    assert not tracing.on()


async def test_a_span_within_a_span_is_below_it(exporter: InMemorySpanExporter) -> None:
    with tracing.begin("outer", {"n": 1}) as outer:
        tracing.event("said", {"what": "hello", "nothing": None})
        with tracing.begin("inner"):
            pass
    with tracing.begin("other"):
        pass
    text = outer.traceparent
    found = await spans(exporter)
    assert text is not None
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-0[13]", text)
    inner, other, whole = found["inner"], found["other"], found["outer"]
    assert f"{inner.parent.span_id:016x}" == text.split("-")[2]
    assert other.parent is None
    assert other.context.trace_id != inner.context.trace_id
    assert dict(whole.attributes) == {"n": 1}
    assert [(e.name, dict(e.attributes)) for e in whole.events] == [("said", {"what": "hello"})]


async def test_a_span_continues_the_trace_of_its_traceparent(exporter: InMemorySpanExporter) -> None:
    tracing.begin("next", parent=PARENT).end()
    found = (await spans(exporter))["next"]
    assert f"{found.context.trace_id:032x}" == "a" * 32
    assert f"{found.parent.span_id:016x}" == "b" * 16


@pytest.mark.parametrize("text", ["", "nonsense", "00-" + "0" * 32 + "-" + "b" * 16 + "-01", 5, None, ["x"], "ü" * 60])
async def test_an_invalid_traceparent_begins_a_new_trace(exporter: InMemorySpanExporter, text: object) -> None:
    tracing.begin("next", parent=text).end()
    found = (await spans(exporter))["next"]
    assert found.parent is None
    assert found.context.trace_id


async def test_an_unsampled_trace_stays_unsampled(exporter: InMemorySpanExporter) -> None:
    tracing.begin("next", parent=PARENT[:-1] + "0").end()
    assert await spans(exporter) == {}


async def test_an_error_is_recorded_in_the_span_and_propagates(exporter: InMemorySpanExporter) -> None:
    with pytest.raises(ZeroDivisionError), tracing.begin("bad"):
        raise ZeroDivisionError
    found = (await spans(exporter))["bad"]
    assert dict(found.attributes) == {"error.type": "ZeroDivisionError"}
