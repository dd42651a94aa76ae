"""SSH access: shown to callers who may, read live from the provider, and never stored."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from schema import ids
from schema.types.instance import SshAccess
from server.enums import InstanceStatus, Role
from server.instances.provider import live_reads
from server.instances.queries import access as ssh
from server.simulator.faults import Fault, FaultKind
from server.simulator.models import Instance as Machine
from tests.server.cache.test_redis import Redis, needs_redis, redis
from tests.support.api import Api
from tests.support.api_server import serving
from tests.support.machines import remove_outside, stop_outside
from tests.support.world import GET, World

__all__ = ["redis"]

S = InstanceStatus
ACCESS = "query ($id: ID!) { sshAccess(instanceId: $id) { command password isRunning } }"


async def test_an_operator_gets_what_the_provider_returns_now(api: Api):
    id, machine = await _ready(api)

    access = await _access(api, id)

    assert access == {"command": machine.ssh_command, "password": machine.ssh_password, "isRunning": True}
    assert machine.ssh_password


async def test_after_a_restart_the_new_password_is_returned(api: Api):
    id, machine = await _ready(api)
    before = await _access(api, id)
    restart = "mutation ($id: ID!) { restartInstance(input: {id: $id}) { operation { id } errors { code } } }"
    payload = (await api.ask(restart, id=_shown(id))).data["restartInstance"]
    await api.world.work_until_over(ids.parse(ids.OPERATION, payload["operation"]["id"]))
    await api.world.work_until_status(id, S.READY)

    after = await _access(api, id)

    assert after is not None
    assert before is not None
    assert (after["command"], after["password"]) == (machine.ssh_command, machine.ssh_password)
    assert after["password"] != before["password"]
    assert after["command"] != before["command"]


async def test_each_question_is_asked_of_the_provider_and_none_is_remembered(api: Api):
    id, _ = await _ready(api)
    calls = api.world.calls(GET)

    for _ in range(3):
        await _access(api, id)

    assert api.world.calls(GET) == calls + 3


async def test_a_machine_that_failed_its_checks_can_be_logged_in_to(api: Api):
    id, machine = await _ready(api)
    await api.world.execute("UPDATE instance SET status = 'FAILED', failure_code = 'BROKEN' WHERE id = $1", id)

    access = await _access(api, id)

    assert access is not None
    assert access["password"] == machine.ssh_password


async def test_access_is_null_while_the_machine_does_not_run(api: Api):
    id, machine = await _ready(api)
    await stop_outside(api.world, machine.id)
    assert await _access(api, id) is None  # although our row still says READY

    await remove_outside(api.world, machine.id)
    assert await _access(api, id) is None

    calls = api.world.calls(GET)
    waiting, gone = await api.world.put(S.CREATING), await api.world.put(S.DELETED, novita_id="m9")
    assert await _access(api, waiting.id) is None
    assert await _access(api, gone.id) is None
    assert api.world.calls(GET) == calls


async def test_a_reader_is_refused_before_the_provider_is_asked(api: Api):
    id, machine = await _ready(api)
    reader, _ = await api.world.new_token(role=Role.READER)
    calls = api.world.calls()

    answer = await api.ask(ACCESS, token=reader, id=_shown(id))

    assert answer.error["code"] == "FORBIDDEN"
    assert answer.body["data"] == {"sshAccess": None}
    assert machine.ssh_password not in str(answer.body)
    assert api.world.calls() == calls


async def test_another_projects_instance_is_as_if_it_were_not(api: Api):
    id, _ = await _ready(api)
    stranger, _ = await api.world.new_token("strangers", Role.ADMIN)
    calls = api.world.calls()

    for token, shown in ((stranger, _shown(id)), (api.token, _shown(UUID(int=7))), (api.token, "nonsense")):
        assert (await api.ask(ACCESS, token=token, id=shown)).data == {"sshAccess": None}

    assert api.world.calls() == calls


async def test_with_the_provider_away_the_error_is_retryable(world: World):
    async with _own(world) as api:
        id, _ = await _ready(api)
        await _access(api, id)
        world.outage()

        answer = await api.ask(ACCESS, id=_shown(id))

    assert (answer.status, answer.body["data"]) == (200, {"sshAccess": None})
    assert (answer.error["code"], answer.error["retryable"]) == ("NETWORK_ERROR", True)
    assert answer.error["message"].startswith("The provider call failed")


async def test_a_provider_that_says_nothing_is_not_waited_for_long(api: Api, monkeypatch: pytest.MonkeyPatch):
    id, _ = await _ready(api)
    monkeypatch.setattr(live_reads, "FETCH_TIMEOUT", timedelta(seconds=0.5))
    api.world.faults(Fault(FaultKind.HANG, routes=(GET,)))

    answer = await api.ask(ACCESS, id=_shown(id))

    assert (answer.error["code"], answer.error["retryable"]) == ("NETWORK_ERROR", True)
    assert "takes too long" in answer.error["message"]


async def test_a_token_that_asks_too_often_is_refused_and_its_neighbour_is_not(api: Api):
    id, _ = await _ready(api)
    calls = api.world.calls(GET)
    async with serving(api.server.runtime.database_url, api.server.simulator, live_reads_per_token=4) as server:
        answers = await asyncio.gather(
            *(server.ask(ACCESS, token=api.token, variables={"id": _shown(id)}) for _ in range(20))
        )
        refused = [answer.error for answer in answers if "errors" in answer.body]
        neighbour, _ = await api.world.new_token()
        other = await server.ask(ACCESS, token=neighbour, variables={"id": _shown(id)})

    assert len(refused) == 18
    assert {(error["code"], error["retryable"]) for error in refused} == {("RATE_LIMITED", True)}
    assert all(0 < error["retryAfterMs"] <= 15_000 for error in refused)
    assert other.data["sshAccess"] is not None
    assert api.world.calls(GET) == calls + 3


@needs_redis
async def test_the_password_is_in_no_log_table_event_or_cache(
    world: World, redis: Redis, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
):
    caplog.set_level(logging.DEBUG)
    with capture_logs() as lines:
        async with _own(world, redis_url=redis.url) as api:
            id, machine = await _ready(api)
            secret = machine.ssh_password
            access = await _access(api, id)
            await _access(api, id)
            # Reads that cache data of the same machine: the fleet, and polls of an instance in transition.
            await api.ask("{ fleet { items { nodes { name } } } }")
            await api.server.runtime.provider_reader._poll(machine.id)
            world.faults(Fault(FaultKind.CUT_JSON, routes=(GET,)))
            broken = await api.ask(ACCESS, id=_shown(id))
            world.faults()
            kept = await _everything_in(redis)
    assert access is not None
    assert access["password"] == secret
    assert broken.body["errors"]

    assert "request.answered" in str(lines)
    assert machine.id in kept  # so there was something to search
    places = {"the log": str(lines), "its records": caplog.text, "the output": "".join(capfd.readouterr())}
    places |= {"Redis": kept, "an error": str(broken.body), **await _tables(world)}
    assert "instance" in places
    assert [place for place, text in places.items() if secret in text] == []


def test_what_a_resolver_answers_with_prints_no_password():
    access = ssh.SshAccess("ssh -p 1 root@h", ssh.SecretStr("hunter22"), True)

    assert "hunter22" not in f"{access!r} {SshAccess.of(access)!r}"
    assert SshAccess.of(access).password() == "hunter22"


@asynccontextmanager
async def _own(world: World, **settings: Any) -> AsyncIterator[Api]:
    """A server of the test's own, which may lose faith in the provider without others noticing."""
    token, world.caller = await world.new_token()
    async with serving(world.database._hosts._urls[0], world.simulator, **settings) as server:
        yield Api(server, world, token, world.caller)


async def _ready(api: Api) -> tuple[UUID, Machine]:
    accepted = await api.world.create()
    id = accepted.instance.id
    await api.world.work_until_status(id, S.READY)
    row = await api.world.instance(id)
    return id, api.world.simulator.world.instance(row["novita_id"])


async def _access(api: Api, id: UUID) -> dict[str, Any] | None:
    return (await api.ask(ACCESS, id=_shown(id))).data["sshAccess"]


def _shown(id: UUID) -> str:
    return ids.format_id(ids.INSTANCE, id)


async def _everything_in(redis: Redis) -> str:
    from redis.asyncio import Redis as Client  # noqa: PLC0415 - an optional package

    async with Client.from_url(redis.url.get_secret_value()) as client:
        return "\n".join([f"{key!r} {await client.dump(key)!r}" async for key in client.scan_iter()])


async def _tables(world: World) -> dict[str, str]:
    """Every table, events and jobs too, as text."""
    names = await world.rows(
        "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition"
        " AND relnamespace = 'public'::regnamespace"
    )
    found: dict[str, str] = {}
    for (name,) in names:
        found[name] = "\n".join(row[0] for row in await world.rows(f'SELECT to_jsonb(t)::text FROM "{name}" AS t'))
    return found
