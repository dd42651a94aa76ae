"""Logs and access addresses of a machine: read live for OPERATORs, through the guard, at most 1 MiB, never stored."""

import logging
import re
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from schema import event_sources, ids
from server.enums import InstanceStatus, Role
from server.errors import NovitaError
from server.instances.queries.log import MAX_BYTES, LogPart, LogReader
from server.simulator.faults import Fault, FaultKind
from server.simulator.models import Instance as Machine
from server.simulator.routes.logs import add_line
from server.ssrf import PrivateAddresses
from tests.support.api import Api
from tests.support.world import GET

LOG = """query ($id: ID!, $which: LogKind! = CONTAINER, $tail: Int! = 200) {
    instanceLog(instanceId: $id, which: $which, tail: $tail) { text begin end } }"""
FOLLOW = "subscription ($id: ID!) { instanceLog(instanceId: $id, which: SYSTEM) { text begin end } }"
ACCESS = """query ($id: ID!) { instanceAccess(instanceId: $id) {
    ssh { command password } jupyter { address port isRunning }
    webTerminal { address username password isRunning } } }"""


async def ready(api: Api, **fields: Any) -> tuple[str, Machine]:
    accepted = await api.world.create(**fields)
    await api.world.work_until_status(accepted.instance.id, InstanceStatus.READY)
    row = await api.world.instance(accepted.instance.id)
    return shown(accepted.instance.id), api.world.simulator.world.instance(row["novita_id"])


def shown(id: UUID) -> str:
    return ids.format_id(ids.INSTANCE, id)


def write(api: Api, machine: Machine, line: str, which: str = "system") -> None:
    add_line(api.world.simulator.world, machine, which, line)


async def read(api: Api, id: str, **arguments: Any) -> dict[str, Any]:
    return (await api.ask(LOG, id=id, **arguments)).data["instanceLog"]


async def test_the_end_of_either_log_is_returned(api: Api):
    id, machine = await ready(api)
    write(api, machine, "one")
    write(api, machine, "zwei ü")
    write(api, machine, "from inside", "instance")

    system = await read(api, id, which="SYSTEM", tail=2)
    container = await read(api, id)

    assert system["text"] == "one\nzwei ü\n"
    assert (await read(api, id, which="SYSTEM"))["end"] == system["end"]
    assert system["end"] - system["begin"] == len("one\nzwei ü\n".encode())
    assert "from inside\n" in container["text"]
    assert "one\n" not in container["text"]


async def test_at_most_a_mebibyte_is_read_also_of_a_server_that_ignores_ranges(
    api: Api, monkeypatch: pytest.MonkeyPatch
):
    id, machine = await ready(api)
    for number in range(3):
        write(api, machine, f"{number}" * 600_000)

    end = await read(api, id, which="SYSTEM")
    assert len(end["text"]) == MAX_BYTES
    assert end["text"].endswith("2\n")

    monkeypatch.setattr("server.simulator.routes.logs.RANGE", re.compile("nothing"))
    whole = await read(api, id, which="SYSTEM")
    assert (len(whole["text"].encode()), whole["begin"]) == (MAX_BYTES, 0)


async def test_a_tail_out_of_range_and_a_machine_that_is_gone(api: Api):
    id, _ = await ready(api)
    for tail in (0, 10_001):
        assert (await api.ask(LOG, id=id, tail=tail)).error["code"] == "INVALID_LIMIT"
    waiting = await api.world.put(InstanceStatus.CREATING)
    missing = await api.world.put(novita_id="m9")
    for none in (shown(waiting.id), shown(missing.id), "nonsense"):
        assert await read(api, none) is None


async def test_a_reader_and_another_project_learn_nothing_and_the_provider_is_not_asked(api: Api):
    id, machine = await ready(api)
    reader, _ = await api.world.new_token(role=Role.READER)
    stranger, _ = await api.world.new_token("strangers", Role.ADMIN)
    calls = api.world.calls(GET)
    for document in (LOG, ACCESS):
        refused = await api.ask(document, token=reader, id=id)
        assert refused.error["code"] == "FORBIDDEN"
        assert machine.ssh_password not in str(refused.body)
        assert list((await api.ask(document, token=stranger, id=id)).data.values()) == [None]
    assert api.world.calls(GET) == calls


async def test_a_subscription_begins_with_the_last_lines_and_goes_on_with_what_is_added(
    api: Api, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(event_sources, "LOG_INTERVAL", event_sources.LOG_INTERVAL / 40)
    id, machine = await ready(api)
    write(api, machine, "before")
    async with api.server.watching(FOLLOW, token=api.token, variables={"id": id}) as socket:
        first = await socket.next("instanceLog")
        assert first["text"].endswith("before\n")
        end = first["end"]
        for line in ("one", "two"):
            write(api, machine, line)
            more = await socket.next("instanceLog")
            assert (more["text"], more["begin"]) == (f"{line}\n", end)
            end = more["end"]
        # A second subscriber of the same log begins with all of it.
        async with api.server.watching(FOLLOW, token=api.token, variables={"id": id}) as other:
            assert (await other.next("instanceLog"))["text"].endswith("before\none\ntwo\n")
            write(api, machine, "three")
            assert [(await each.next("instanceLog"))["text"] for each in (socket, other)] == ["three\n"] * 2


async def test_a_log_that_is_begun_anew_is_sent_from_its_beginning(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(event_sources, "LOG_INTERVAL", event_sources.LOG_INTERVAL / 40)
    parts = [LogPart("", 0, 0), LogPart("new\n", 0, 4)]

    async def read_end() -> LogPart:
        return LogPart("the old one\n", 0, 12)

    async def read_from(_begin: int) -> LogPart:
        return parts.pop(0)

    source = event_sources.LogTextSource(read_end, read_from, lambda part: part)
    items = [event.item async for event in _first(source, 2)]

    assert items == [LogPart("", 0, 0), LogPart("new\n", 0, 4)]
    first = await source.snapshot()
    assert first is not None
    assert first.item == LogPart("new\n", 0, 4)


async def test_log_addresses_on_private_networks_are_not_connected_to(api: Api):
    reader = LogReader(lambda: PrivateAddresses.OFF)
    try:
        with pytest.raises(NovitaError) as found:
            await reader.read_end(f"{api.world.simulator.url}/control/state?token=hunter22")
    finally:
        await reader.close()
    assert found.value.code == "NETWORK_ERROR"
    assert "hunter22" not in f"{found.value} {found.value.__cause__}"


async def test_access_has_jupyter_and_the_web_terminal_and_only_while_it_runs(api: Api):
    id, machine = await ready(api, template_id="107672", ports=None)

    access = (await api.ask(ACCESS, id=id)).data["instanceAccess"]

    assert access["ssh"] == {"command": machine.ssh_command, "password": machine.ssh_password}
    assert access["jupyter"] == {"address": machine.endpoints["8888"], "port": 8888, "isRunning": True}
    terminal = access["webTerminal"]
    assert (terminal["username"], terminal["password"]) == ("root", machine.ssh_password)
    assert terminal["address"].startswith("http")
    await api.world.novita.stop_instance(machine.id)
    assert (await api.ask(ACCESS, id=id)).data["instanceAccess"] is None


async def test_nothing_of_a_log_or_an_address_is_stored_or_logged(api: Api, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    id, machine = await ready(api)
    write(api, machine, "hunter22hunter", "instance")
    with capture_logs() as lines:
        assert "hunter22hunter" in (await read(api, id))["text"]
        await api.ask(ACCESS, id=id)
        api.world.faults(Fault(FaultKind.CUT_JSON, routes=(GET,), times=1))
        await api.ask(LOG, id=id)
    names = await api.world.rows(
        "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition"
        " AND relnamespace = 'public'::regnamespace"
    )
    # The simulator is in this process, and its access log names the address.
    kept = f"{lines} {[record.getMessage() for record in caplog.records if record.name != 'uvicorn.access']}"
    for (name,) in names:
        kept += "".join(row[0] for row in await api.world.rows(f'SELECT to_jsonb(t)::text FROM "{name}" AS t'))
    assert machine.id in kept
    for secret in ("hunter22hunter", machine.ssh_password, "/log/instance", "/terminal"):
        assert secret not in kept


async def _first(source: event_sources.LogTextSource, count: int) -> AsyncIterator[event_sources.SourceEvent]:
    async with aclosing(source.follow(lambda _: None)) as events:
        async for event in events:
            yield event
            count -= 1
            if count == 0:
                return
