"""Traces cost nothing without a collector, and carry no secrets."""

import subprocess
import sys
from uuid import UUID

import pytest

from server.config import Settings
from server.errors import StartupProblem
from server.observe import tracing
from server.observe.tracing import Kind, attributes, span
from tests.support.otel_collector import collector

ID = UUID("01901234-5678-7abc-8def-0123456789ab")


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_without_a_collector_we_import_nothing_of_opentelemetry():
    """Not by us: the redis library imports it as well if it is installed."""
    done = python(
        "import server.cli.up, sys; print({'server.observe.otel', 'opentelemetry.exporter'} & {*sys.modules})"
    )

    assert (done.stdout, done.stderr) == ("set()\n", "")


def test_without_the_packages_a_collector_is_refused_in_one_sentence():
    done = python(
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from server.observe import tracing\n"
        "tracing.begin('http://127.0.0.1:4318', service='x', version='y')"
    )

    assert "StartupProblem: OTEL_EXPORTER_OTLP_ENDPOINT needs the OpenTelemetry packages" in done.stderr


def test_without_a_collector_a_span_is_always_the_same_nothing():
    first = span("one", kind=Kind.CLIENT, instance_id=ID)
    with first as entered:
        entered.note(http_status=200)
        entered.rename("two")
        entered.fail("CODE")
        assert tracing.traceparent() is None
        assert tracing.traceparent() is None
    assert span("other") is first


def test_facts_are_shown_as_callers_see_them():
    assert attributes({"instance_id": ID, "port": 80, "nothing": None, "kind": Kind.CLIENT}) == {
        "pilotlight.instance_id": f"inst_{ID.hex}",
        "pilotlight.port": 80,
        "pilotlight.kind": "Kind.CLIENT",
    }


async def test_an_exception_marks_its_span_by_type_and_nothing_else():
    async with collector() as collecting:
        tracing.begin(collecting.url, service="tested", version="1")
        try:
            with pytest.raises(ValueError, match="hunter2"), span("outer", kind=Kind.SERVER), span("inner"):
                raise ValueError("the password is hunter2")
            assert tracing.traceparent() is None
        finally:
            await tracing.end()

    [inner], [outer] = collecting.named("inner"), collecting.named("outer")
    assert (inner.is_error, outer.is_error) == (True, True)
    assert (inner.parent_id, inner.trace_id, inner.service) == (outer.id, outer.trace_id, "tested")
    assert b"ValueError" in b"".join(collecting.raw)
    assert b"hunter2" not in b"".join(collecting.raw)
    assert span("after the end") is span("of all")


@pytest.mark.parametrize(
    "given", ["", "nonsense", "00-zz-zz-01", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "x" * 5000]
)
async def test_a_traceparent_that_is_none_begins_a_trace_of_its_own(given: str):
    async with collector() as collecting:
        tracing.begin(collecting.url, service="tested", version="1")
        try:
            with span("arrived", kind=Kind.SERVER, parent=given):
                assert tracing.traceparent() is not None
        finally:
            await tracing.end()

    [arrived] = collecting.named("arrived")
    assert arrived.parent_id == ""


def test_an_address_with_a_password_is_refused_and_not_repeated():
    with pytest.raises(StartupProblem) as refused:
        Settings.from_env(otel_exporter_otlp_endpoint="http://user:hunter2@127.0.0.1:4318")

    assert "OTEL_EXPORTER_OTLP_HEADERS" in str(refused.value)
    assert "hunter2" not in str(refused.value)
