"""The catalogue, quotes, the fleet and cache statistics over HTTP."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from server.enums import InstanceStatus, Role
from server.instances import transitions
from server.instances.provider.reader import FRESH_FOR
from server.simulator.faults import Fault, FaultKind
from tests.support.api_server import Server, serving
from tests.support.machines import make_running, missing_for, remove_outside, stop_outside
from tests.support.waiting import until
from tests.support.world import GET, LIST, RTX, World

S = InstanceStatus
SYNC = "mutation { syncFleet { report { compared gone stopped } errors { code } } }"
AGO = f"interval '{int(FRESH_FOR.total_seconds()) + 30} seconds'"


async def test_products_are_listed_by_region_with_both_prices_and_stock(world: World):
    async with _client(world) as ask:
        data = await ask(
            '{ products(filter: {name: "4090", regions: ["AS-SGP-02"]}) { id name region { code clusterId } vramGb'
            " isAvailable isSpotAvailable pricePerGpuHour { amountMicros currency }"
            " spotPricePerGpuHour { amountMicros } } }"
        )

    (product,) = [each for each in data["products"] if each["name"] == RTX]
    assert product["region"] == {"code": "AS-SGP-02", "clusterId": "as-sgp-2"}
    assert (product["vramGb"], product["isAvailable"], product["isSpotAvailable"]) == (24, True, True)
    assert product["pricePerGpuHour"]["amountMicros"] > product["spotPricePerGpuHour"]["amountMicros"] > 0


async def test_a_product_has_another_id_in_each_region_and_is_found_by_it(world: World):
    async with _client(world) as ask:
        listed = (await ask("{ products { id name region { code } pricePerGpuHour { amountMicros } } }"))["products"]
        ids = " ".join(f'"{each["id"]}"' for each in listed)
        fields = "id name region { code } pricePerGpuHour { amountMicros }"
        found = await ask(f"{{ nodes(ids: [{ids}]) {{ ... on Product {{ {fields} }} }} }}")

    assert len({each["id"] for each in listed}) == len(listed)
    assert len({each["name"] for each in listed}) < len(listed)  # some are in several regions
    assert found["nodes"] == listed


async def test_regions_templates_and_registry_auths_are_read_without_secrets(world: World):
    async with _client(world) as ask:
        data = await ask(
            '{ regions { code clusterId } templates { nodes { id name problems } } template(id: "107674")'
            ' { image registryAuthId ports { port type } } missing: template(id: "1") { id }'
            " registryAuths { id name username } }"
        )
        schema = await ask('{ __type(name: "RegistryAuth") { fields { name } } }')

    assert {"code": "CN-HK-01", "clusterId": "cn-hongkong-1"} in data["regions"]
    broken = {each["name"]: each["problems"] for each in data["templates"]["nodes"] if each["problems"]}
    assert broken["broken-no-image"] == ["image: it is empty"]
    assert broken["broken-ports"][0].startswith("ports: ")
    assert data["template"]["ports"] == [{"port": 8080, "type": "http"}, {"port": 22, "type": "tcp"}]
    assert data["missing"] is None
    assert data["template"]["registryAuthId"] == data["registryAuths"][0]["id"]
    assert [each["name"] for each in schema["__type"]["fields"]] == ["id", "novitaId", "name", "username"]
    assert "password" not in str(data)


async def test_templates_are_read_page_by_page(world: World):
    page = "{ nodes { id } edges { cursor node { id } } pageInfo { hasNextPage hasPreviousPage endCursor } totalCount }"
    async with _client(world) as ask:
        whole = (await ask(f"{{ templates {page} }}"))["templates"]
        seen: list[str] = []
        after = ""
        while not seen or after:
            given = f', after: "{after}"' if after else ""
            part = (await ask(f"{{ templates(first: 2{given}) {page} }}"))["templates"]
            assert part["totalCount"] == whole["totalCount"]
            assert part["pageInfo"]["hasPreviousPage"] == bool(after)
            assert [edge["node"] for edge in part["edges"]] == part["nodes"]
            seen += [node["id"] for node in part["nodes"]]
            after = part["pageInfo"]["endCursor"] if part["pageInfo"]["hasNextPage"] else ""

    assert seen == [node["id"] for node in whole["nodes"]]
    assert len(seen) == whole["totalCount"] > 2


async def test_an_empty_list_of_the_provider_has_an_age_too(world: World):
    async with _client(world) as ask:
        first = (await ask("{ fleet { listedAt cacheAge } }"))["fleet"]
        second = (await ask("{ fleet { listedAt cacheAge } }"))["fleet"]

    assert world.machines() == []
    assert second["listedAt"] == first["listedAt"]
    assert second["cacheAge"] > first["cacheAge"]


async def test_a_quote_ranks_every_region_and_writes_nothing(world: World):
    world.stock("as-sgp-2", 0)
    before = await world.counts()
    async with _client(world) as ask:
        data = await ask(
            '{ quote(input: {productName: "RTX 4090 24GB", gpuCount: 2}) { pricePerHour { amountMicros }'
            " best { rank region billingMode } errors { code } candidates"
            " { rank region billingMode accepted reasonCode pricePerHour { amountMicros } } } }"
        )

    quote = data["quote"]
    tried = [
        (each["region"], each["billingMode"], each["accepted"], each["reasonCode"]) for each in quote["candidates"]
    ]
    assert tried[:3] == [
        ("AS-SGP-02", "SPOT", False, "OUT_OF_STOCK"),
        ("AS-SGP-02", "ON_DEMAND", False, "OUT_OF_STOCK"),
        ("CN-HK-01", "SPOT", True, None),
    ]
    assert quote["best"] == {"rank": 3, "region": "CN-HK-01", "billingMode": "SPOT"}
    assert quote["pricePerHour"] == quote["candidates"][2]["pricePerHour"]
    assert await world.counts() == before


async def test_a_quote_of_nonsense_says_what_is_wrong(world: World):
    async with _client(world) as ask:
        data = await ask('{ quote(input: {productName: "", gpuCount: 9, region: "MARS-1"}) { errors { code path } } }')

    assert [each["code"] for each in data["quote"]["errors"]] == ["INVALID_PRODUCT_NAME", "INVALID_GPU_COUNT"]


async def test_a_create_with_warm_caches_is_accepted_while_the_provider_is_down(world: World):
    async with _client(world) as ask:
        await ask(_create("first"))
        world.outage()
        calls = world.calls()

        data = await ask(_create("second"))

        assert data["createInstance"]["errors"] == []
        assert data["createInstance"]["instance"]["status"] == "CREATING"
        assert world.calls() == calls
        world.faults()
    row = await world.one("SELECT id FROM instance WHERE name = 'second'")
    await world.work_until_status(row["id"], S.READY)


async def test_the_fleet_is_ours_and_theirs_merged(world: World):
    ours = await world.create("ours")
    await world.work_until_status(ours.instance.id, S.READY)
    other = await world.new_caller("other")
    theirs = await world.create("theirs", by=other)
    await world.work_until_status(theirs.instance.id, S.READY)
    (unmanaged,) = await make_running(world, 1)
    await world.put(S.CREATING, name="waiting")
    await stop_outside(world, (await world.instance(ours.instance.id))["novita_id"])

    async with _client(world, Role.ADMIN) as ask:
        data = await ask(FLEET % "true")
        calls = world.calls(LIST)
        again = await ask(FLEET % "false")

    fleet = data["fleet"]
    shown = {each["name"]: (each["source"], each["status"]) for each in fleet["items"]["nodes"]}
    assert shown == {
        "ours": ("MERGED", "EXITED"),  # the provider's word wins, although our row still says READY
        "waiting": ("LOCAL", "CREATING"),
        "by-hand-0": ("NOVITA", "RUNNING"),
    }
    assert fleet["counts"] == {"local": 1, "novita": 1, "merged": 1, "total": 3}
    assert fleet["problem"] is None
    assert unmanaged in {each["novitaId"] for each in fleet["items"]["nodes"]}
    assert calls == 2  # one page, and a second look to see that it was the last
    assert (again["fleet"]["counts"]["total"], world.calls(LIST)) == (2, calls)
    assert again["fleet"]["cacheAge"] > 0


async def test_without_the_provider_the_fleet_is_our_rows_alone_and_says_so(world: World):
    await world.put(S.READY, name="ours", novita_id="0123456789abcdef")
    world.outage()
    async with _client(world) as ask:
        fleet = (await ask(FLEET % "false"))["fleet"]

    assert [(each["name"], each["source"], each["status"]) for each in fleet["items"]["nodes"]] == [
        ("ours", "LOCAL", "READY")
    ]
    assert (fleet["problem"]["code"], fleet["listedAt"]) == ("NETWORK_ERROR", None)


async def test_machines_of_the_account_are_for_admins(world: World):
    async with _server(world) as server:
        token, _ = await world.new_token(role=Role.OPERATOR)
        answer = await server.ask(FLEET % "true", token=token)
        adopting = await server.ask(ADOPT % "0123456789abcdef", token=token)
        clearing = await server.ask('mutation { clearCache(input: {name: "products"}) { cleared } }', token=token)
        stats = await server.ask("{ cacheStats { name } }", token=token)

    for refused in (answer, adopting, clearing, stats):
        assert refused.error["code"] == "FORBIDDEN"


async def test_sync_and_adopt_over_http(world: World):
    ours = await world.create("ours")
    await world.work_until_status(ours.instance.id, S.READY)
    await remove_outside(world, (await world.instance(ours.instance.id))["novita_id"])
    (machine,) = await make_running(world, 1)

    async with _client(world, Role.ADMIN) as ask:
        first = await ask(SYNC)
        await missing_for(world, 61)
        synced = await ask(SYNC)
        adopted = await ask(ADOPT % machine)
        twice = await ask(ADOPT % machine)

    assert first["syncFleet"] == {"report": {"compared": 1, "gone": 0, "stopped": 0}, "errors": []}
    assert synced["syncFleet"] == {"report": {"compared": 1, "gone": 1, "stopped": 0}, "errors": []}
    assert adopted["adoptInstance"]["instance"] == {"name": "mine", "status": "STARTING", "novitaId": machine}
    assert adopted["adoptInstance"]["operation"]["kind"] == "START"
    assert [each["code"] for each in twice["adoptInstance"]["errors"]] == ["MACHINE_NOT_FOUND"]


async def test_a_stale_instance_in_transition_is_polled_once_for_all_readers(world: World):
    instance_id = await _starting(world)
    world.faults(Fault(FaultKind.LATENCY, routes=(GET,), seconds=0.1))
    calls = world.calls(GET)

    async with _client(world) as ask:
        answers = await asyncio.gather(*(ask(_read(instance_id)) for _ in range(20)))

    assert {answer["instance"]["stale"] for answer in answers} == {False}
    assert answers[0]["instance"]["novitaStatus"] == "running"
    assert answers[0]["instance"]["status"] == "STARTING"  # its own job moves it, not a reader
    assert world.calls(GET) == calls + 1


async def test_one_field_of_a_stale_instance_in_transition_is_read_like_all_of_them(world: World):
    instance_id = await _starting(world)
    async with _client(world) as ask:
        for field, expected in (("status", "STARTING"), ("novitaStatus", "running"), ("stale", False)):
            await world.execute(f"UPDATE instance SET observed_at = observed_at - {AGO}, status_since = now() - {AGO}")
            answer = await ask(f'{{ instance(id: "inst_{instance_id.hex}") {{ {field} }} }}')
            assert answer == {"instance": {field: expected}}


async def test_read_of_a_stale_instance_does_not_wait_for_its_locked_row(world: World):
    instance_id = await _starting(world)
    async with world.database.write() as holder, _client(world) as ask:
        await transitions.lock(holder, instance_id)
        instance = (await ask(_read(instance_id)))["instance"]

    assert (instance["status"], instance["stale"]) == ("STARTING", True)


async def test_with_the_provider_away_the_last_known_state_is_returned_as_stale(world: World):
    instance_id = await _starting(world)
    world.outage()

    async with _client(world) as ask:
        instance = (await ask(_read(instance_id)))["instance"]
        by_name = (await ask('{ instanceByName(name: "moving") { stale status } }'))["instanceByName"]
        listed = (await ask("{ instances { nodes { stale staleFor } } }"))["instances"]["nodes"]

    assert (instance["status"], instance["stale"]) == ("STARTING", True)
    assert instance["staleFor"] >= FRESH_FOR.total_seconds()
    assert by_name == {"stale": True, "status": "STARTING"}
    assert listed[0]["stale"] is True


async def test_an_instance_at_rest_is_read_without_a_provider_call(world: World):
    accepted = await world.create("resting")
    await world.work_until_status(accepted.instance.id, S.READY)
    await world.execute(f"UPDATE instance SET observed_at = now() - {AGO}, status_since = now() - {AGO}")

    async with _client(world) as ask:
        calls = world.calls()
        instance = (await ask(_read(accepted.instance.id)))["instance"]

    assert (instance["stale"], instance["staleFor"]) == (False, None)
    assert world.calls() == calls


@pytest.mark.usefixtures("quick_polls")
async def test_reads_of_unknown_ids_open_no_breaker(world: World):
    """Reads of unknown ids must not open the breaker for every caller."""
    async with _client(world) as ask:
        for number in range(10):
            assert (await ask('{ template(id: "99999999") { id } }'))["template"] is None
            moving = await world.put(S.STARTING, novita_id=f"gone{number:012d}")
            await world.execute(f"UPDATE instance SET status_since = now() - {AGO}, updated_at = now() - {AGO}")
            await ask(_read(moving.id))
        assert len((await ask("{ regions { code } }"))["regions"]) > 0


async def test_caches_are_seen_and_emptied(world: World):
    async with _client(world, Role.ADMIN) as ask:
        for _ in range(2):
            await ask('{ template(id: "107672") { id } }')
        stats = {each["name"]: each for each in (await ask(STATS))["cacheStats"]}
        cleared = await ask('mutation { clearCache(input: {name: "templates"}) { cleared errors { code } } }')
        unknown = await ask('mutation { clearCache(input: {name: "nonsense"}) { errors { code } } }')
        expired = await ask("mutation { clearExpiredCache { cleared } }")
        after = {each["name"]: each for each in (await ask(STATS))["cacheStats"]}

    assert {"regions", "products", "templates", "instances", "states", "fleet"} <= stats.keys()
    templates = stats["templates"]
    assert (templates["size"], templates["keys"]) == (1, ["107672"])
    assert (templates["hits"], templates["misses"], templates["ratio"]) == (1, 1, 0.5)
    assert cleared["clearCache"] == {"cleared": 1, "errors": []}
    assert unknown["clearCache"]["errors"] == [{"code": "CACHE_NOT_FOUND"}]
    assert expired["clearExpiredCache"]["cleared"] == 0
    assert after["templates"]["size"] == 0


async def test_a_write_to_an_instance_drops_what_is_remembered_of_it(world: World):
    instance_id = await _starting(world)
    async with _server(world) as server:
        token, _ = await world.new_token(role=Role.ADMIN)
        await server.ask(_read(instance_id), token=token)

        async def remembered() -> int:
            stats = await server.runtime.caches.stats(first=0)
            return sum(each.size for each in stats if each.name in ("instances", "states"))

        async def is_empty() -> bool:
            return await remembered() == 0

        await until(is_empty)  # the reader's own note was a write
        novita_id = (await world.instance(instance_id))["novita_id"]
        await server.runtime.provider_reader._poll(novita_id)
        assert await remembered() == 1
        await server.ask(
            f'mutation {{ deleteInstance(input: {{id: "inst_{instance_id.hex}"}}) {{ errors {{ code }} }} }}',
            token=token,
        )
        await until(is_empty)


FLEET = """{ fleet(includeNovitaOnly: %s) { counts { local novita merged total } problem { code message } listedAt
  cacheAge localTook novitaTook
  items { nodes { source status name novitaId novitaStatus } } } }"""
ADOPT = """mutation { adoptInstance(input: {novitaId: "%s", name: "mine"}) {
  instance { name status novitaId } operation { kind } errors { code } } }"""
STATS = "{ cacheStats { name size hits misses ratio evictions keys(first: 5) } }"


@asynccontextmanager
async def _server(world: World) -> AsyncIterator[Server]:
    async with serving(world.database._hosts._urls[0], world.simulator) as server:
        yield server


@asynccontextmanager
async def _client(
    world: World, role: Role = Role.OPERATOR
) -> AsyncIterator[Callable[[str], Awaitable[dict[str, Any]]]]:
    async with _server(world) as server:
        token, _ = await world.new_token(role=role)

        async def ask(document: str) -> dict[str, Any]:
            return (await server.ask(document, token=token)).data

        yield ask


def _create(name: str) -> str:
    return (
        f'mutation {{ createInstance(input: {{name: "{name}", productName: "RTX 4090 24GB", templateId: "107675"}})'
        " { instance { status } errors { code message } } }"
    )


def _read(instance_id: Any) -> str:
    return f'{{ instance(id: "inst_{instance_id.hex}") {{ status novitaStatus stale staleFor }} }}'


async def _starting(world: World) -> Any:
    """An instance on its way up, whose machine runs by now and whose row has not been updated for a while."""
    (machine,) = await make_running(world, 1)
    row = await world.put(S.STARTING, name="moving", novita_id=machine, novita_status="pulling")
    await world.execute(
        f"UPDATE instance SET status_since = now() - {AGO}, updated_at = now() - {AGO}, observed_at = now() - {AGO}"
    )
    operation = "INSERT INTO operation (id, project_id, instance_id, kind, status, phase)"
    await world.execute(
        f"{operation} VALUES (gen_random_uuid(), $1, $2, 'CREATE', 'RUNNING', 'PROVISIONING')", row.project_id, row.id
    )
    return row.id
