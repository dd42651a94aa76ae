"""One create is one trace from the API through the worker to the webhook receiver, and in the logs."""

import signal
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from tests.flows.deployment import Deployment, deployment, lines_of, with_values
from tests.support.otel_collector import Span
from tests.support.processes import free_port, pilotlight
from tests.support.waiting import until

CALLERS = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE, CALLERS_SPAN = CALLERS.split("-")[1:3]
# What a create is made of, and nothing of it may be missing from its trace.
STEPS = {
    "mutation createInstance",
    "db.write",
    "job CREATE_INSTANCE",
    "novita POST /gpu/instance/create",
    "job MONITOR_INSTANCE",
    "novita GET /gpu/instance",
    "job HEALTH_CHECK",
    "probe http",
    "job SEND_WEBHOOK",
    "webhook.send",
}
JOBS = {"CREATE_INSTANCE", "MONITOR_INSTANCE", "HEALTH_CHECK", "SEND_WEBHOOK"}


@pytest.fixture(scope="module")
async def on(new_database: Any, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Deployment]:
    async with deployment(await new_database.migrated(), tmp_path_factory.mktemp("traced")) as on:
        yield on


def parents(spans: list[Span], span: Span) -> list[str]:
    """The names of those above it, nearest first."""
    by_id = {each.id: each for each in spans}
    names: list[str] = []
    while span.parent_id in by_id:
        span = by_id[span.parent_id]
        names.append(span.name)
    return names


def is_whole(spans: list[Span]) -> bool:
    """Whether all have come that others are below: a span is sent when it ends, and those below it end before."""
    return {each.parent_id for each in spans} <= {CALLERS_SPAN, *(each.id for each in spans)}


async def test_a_create_is_one_trace_from_the_caller_to_the_receiver(on: Deployment):
    created = await on.create("traced", traceparent=CALLERS)
    await on.until_delivered(created)
    await until(lambda: {each.name for each in on.collector.of_trace(TRACE)} >= STEPS)

    sent = {got.headers["traceparent"].split("-")[2] for got in on.receiver.got}
    await until(lambda: sent <= {each.id for each in on.collector.of_trace(TRACE)})
    await until(lambda: is_whole(on.collector.of_trace(TRACE)))
    spans = on.collector.of_trace(TRACE)
    [root] = [each for each in spans if each.name == "mutation createInstance"]
    assert root.parent_id == CALLERS_SPAN
    assert root.attributes["pilotlight.request_id"] == created.request_id
    api, worker = (
        {each.process for each in spans if each.name == root.name},
        {each.process for each in spans if each.name.startswith("job ")},
    )
    assert len(api) == len(worker) == 1
    assert api.isdisjoint(worker)
    # Each span is below another one of this trace, up to the request.
    for each in spans:
        assert each is root or parents(spans, each)[-1] == root.name, each
    [asked] = [each for each in spans if each.name == "novita POST /gpu/instance/create"]
    assert parents(spans, asked)[0] == "job CREATE_INSTANCE"
    assert {each.attributes["pilotlight.instance_id"] for each in spans if each.name.startswith("job ")} == {
        created.instance_id
    }
    # Receivers continue the trace of the request that delivered the webhook.
    sending = {each.id for each in spans if each.name == "webhook.send"}
    assert {got.headers["traceparent"].split("-")[1] for got in on.receiver.got} == {TRACE}
    assert sent <= sending


async def test_a_create_can_be_followed_in_the_logs_of_all_processes(on: Deployment):
    created = await on.create("told")
    await on.until_delivered(created)
    by_request = {"request_id": created.request_id}
    await until(lambda: len(lines_of(on.worker, event="webhook.sent", **by_request)) >= 6)
    await until(lambda: {each["kind"] for each in lines_of(on.worker, event="job.done", **by_request)} >= JOBS)
    await until(lambda: lines_of(on.api, event="request.answered", status=200, **by_request))

    # Both logs are read once: the worker goes on writing.
    api, worker = lines_of(on.api), lines_of(on.worker)
    [accepted] = with_values(api, event="operation.accepted", **by_request)
    assert accepted["operation_id"] == created.operation_id
    assert accepted["instance_id"] == created.instance_id
    assert with_values(api, event="request.answered", status=200, **by_request)
    done = with_values(worker, event="job.done", **by_request)
    assert {each["kind"] for each in done} == JOBS
    [asked] = with_values(worker, event="novita call", route="POST /gpu/instance/create", **by_request)
    assert asked["job_id"] == next(each["job_id"] for each in done if each["kind"] == "CREATE_INSTANCE")
    story = with_values(worker, **by_request)
    assert [each for each in story if each.get("operation_id") != created.operation_id] == []
    assert {each["instance_id"] for each in story} == {created.instance_id}
    assert {each["token_id"] for each in story} == {accepted["token_id"]}
    assert {each["project_id"] for each in story} == {accepted["project_id"]}
    # By the operation's id alone it is the same story, and every line leads to its trace.
    assert with_values(worker, operation_id=created.operation_id) == story
    assert len({each["trace_id"] for each in (accepted, *story)}) == 1


async def test_no_secret_is_in_any_trace_log_or_metric(on: Deployment):
    created = await on.create("secretive")
    await on.until_delivered(created)
    await until(lambda: any(each.attributes.get("pilotlight.instance_id") for each in on.collector.spans))

    seen = b"".join(on.collector.raw).decode("latin-1") + on.api.said + on.worker.said
    assert created.instance_id in seen
    for base in (on.graphql_url.removesuffix("/graphql"), lines_of(on.worker, event="worker.ready")[0]["url"]):
        async with aiohttp.ClientSession() as http, http.get(f"{base}/metrics") as response:
            seen += await response.text()
    assert 'pilotlight_webhook_deliveries_total{status="DELIVERED"}' in seen
    for secret in [*on.secrets, on.receiver.url]:
        assert secret not in seen


async def test_a_collector_that_is_away_costs_nothing_but_the_traces(new_database: Any, on: Deployment):
    """The same database: another worker, whose spans are not collected."""
    env = {
        "DATABASE_URL": on.database_url,
        "NOVITA_API_KEY": "sk_x",
        "NOVITA_API_BASE_URL": "http://127.0.0.1:1",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port()}",
        "OTEL_BSP_SCHEDULE_DELAY": "50",
        "LOG_FORMAT": "json",
    }
    async with pilotlight("worker", env=env) as worker:
        await worker.says("worker.ready")
        assert await worker.stop(signal.SIGTERM, within=30) == 0
