"""Every typed call against the simulator, and the exact requests it sends."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta

import orjson
import pytest
from pydantic import SecretStr

from server import __version__
from server.errors import AuthFailed, ProviderError, ProviderNotFound, ValidationFailed
from server.novita.client import NovitaClient
from server.novita.models import (
    CreateInstance,
    Env,
    Port,
    RemoteInstance,
    StorageMount,
    TemplateDraft,
    Tool,
    UpgradeInstance,
    Volume,
    find_cluster,
)
from server.novita.transport.retry import MonotonicClock
from server.simulator.options import SimulatorOptions
from server.simulator.server import Simulator
from tests.server.novita.parts import KEY, Request, answer, client_of, provider


@pytest.fixture
async def simulator() -> AsyncIterator[Simulator]:
    async with Simulator(SimulatorOptions(speed=1000)) as simulator:
        yield simulator


@pytest.fixture
async def client(simulator: Simulator) -> AsyncIterator[NovitaClient]:
    async with client_of(simulator.url, clock=MonotonicClock()) as client:
        yield client


async def request_for(client: NovitaClient, name: str = "trainer-1", **fields: object) -> CreateInstance:
    product = next(each for each in await client.products(gpu_count=1) if each.is_deployable)
    return CreateInstance(name=name, product_id=product.id, image="ubuntu:22.04", rootfs_gb=20, **fields)  # type: ignore[arg-type]


async def until(read: Callable[[], Awaitable[RemoteInstance]], *statuses: str) -> RemoteInstance:
    async with asyncio.timeout(30):
        while True:
            found = await read()
            if found.status in statuses:
                return found
            await asyncio.sleep(0.005)


async def test_the_balance_is_in_ten_thousandths_of_a_dollar(client: NovitaClient, simulator: Simulator):
    simulator.world.put("account", "balance", {"available": 123_456})
    balance = await client.balance()
    assert (balance.available_e4, balance.cash_e4, balance.pending_charges_e4) == (123_456, 123_456, 0)
    assert str(balance) == "$12.35"


async def test_regions_and_products(client: NovitaClient):
    clusters = await client.clusters()
    products = await client.products()
    regions = {cluster.code for cluster in clusters}

    assert "US-CA-06" in regions
    assert all(set(product.regions) <= regions for product in products)
    assert all(product.price_per_gpu_hour_e5 > 1_000 for product in products)
    cluster = find_cluster(clusters, "US-CA-06")
    assert cluster is not None
    spot = await client.products(cluster_id=cluster.id, gpu_count=1, product_name="4090", billing="spot")
    assert spot
    assert all(each.spot_price_per_gpu_hour_e5 for each in spot)
    assert all(each.price_per_hour_e5 for each in await client.cpu_products())


async def test_an_instance_from_create_to_gone(client: NovitaClient):
    request = await request_for(
        client,
        ports=(Port(8888, "http"), Port(22, "tcp")),
        envs=(Env("TOKEN", "t-0"),),
        tools=(Tool("Jupyter", 8889, "http"),),
        command="sleep infinity",
    )
    novita_id = await client.create_instance(request)

    async def read() -> RemoteInstance:
        return await client.instance(novita_id)

    running = await until(read, "running")
    assert (running.name, running.gpu_count, running.image) == ("trainer-1", 1, "ubuntu:22.04")
    assert running.envs == (Env("TOKEN", "t-0"),)
    assert {(each.port, each.type) for each in running.endpoints} >= {(8888, "http"), (22, "tcp")}
    assert all(each.address for each in running.endpoints)
    assert running.ssh is not None
    assert running.created_at is not None

    await client.edit_instance(novita_id, ports=[Port(9000, "http")], expand_rootfs_gb=5)
    edited = await client.instance(novita_id)
    assert edited.rootfs_gb == 25
    assert 9000 in {each.port for each in edited.endpoints}

    await client.restart_instance(novita_id)
    await until(read, "running")
    await client.upgrade_instance(novita_id, UpgradeInstance(image="ubuntu:24.04", envs=(Env("A", "1"),)))
    assert (await until(read, "running")).image == "ubuntu:24.04"
    await client.stop_instance(novita_id)
    await until(read, "exited")
    await client.start_instance(novita_id)
    restarted = await until(read, "running")
    assert restarted.ssh is not None
    assert restarted.ssh.password != running.ssh.password

    await client.set_auto_migrate(novita_id, is_on=True)
    await client.stop_instance(novita_id)
    await until(read, "exited")
    await client.migrate_instance(novita_id)
    await until(read, "running", "exited")
    await client.delete_instance(novita_id)
    with pytest.raises(ProviderNotFound):
        await until(read, "never")


async def test_a_subscription_is_made_and_renewed(client: NovitaClient):
    novita_id = await client.create_instance(await request_for(client))

    async def read() -> RemoteInstance:
        return await client.instance(novita_id)

    assert (await until(read, "running")).end_at is None
    await client.to_monthly_instance(novita_id, months=1)
    first = (await read()).end_at
    await client.renew_instance(novita_id, months=2)
    second = (await read()).end_at
    assert first is not None
    assert second is not None
    assert second - first >= timedelta(days=55)


async def test_all_instances_are_every_page(client: NovitaClient, simulator: Simulator):
    for place in simulator.world.catalog.total:
        simulator.world.set_stock(*place, 1000)
    ids = {await client.create_instance(await request_for(client, f"many-{n}")) for n in range(7)}

    page = await client.instances(page=2, page_size=3, name="many")
    assert (len(page.items), page.total) == (3, 7)
    found = await client.all_instances(name="many", page_size=3)
    assert {each.id for each in found} == ids
    assert {each.id for each in await client.all_instances(name="many", page_size=7)} == ids
    assert await client.all_instances(name="nobody") == []


async def test_a_provider_that_serves_smaller_pages_than_asked_for_hides_nothing():
    def page_of_two(request: Request) -> bytes:
        number = int(request.target.partition("pageNum=")[2].partition("&")[0])
        items = [{"id": f"n{each}", "status": "running"} for each in range(5)][(number - 1) * 2 : number * 2]
        return answer(200, {"instances": items, "total": 5})

    async with provider(page_of_two) as scripted, client_of(scripted.url) as client:
        found = await client.all_instances()
    assert [each.id for each in found] == ["n0", "n1", "n2", "n3", "n4"]


async def test_a_list_that_repeats_itself_ends():
    same = answer(200, {"instances": [{"id": "n1"}, {"id": "n2"}], "total": 9})
    async with provider(same) as scripted, client_of(scripted.url) as client:
        assert len(await client.all_instances(page_size=2)) == 2
        assert len(scripted.requests) == 3  # pages 1, 2 and 0
        with pytest.raises(ProviderError, match="2 of the 9 instances"):
            await client.all_instances(page_size=2, must_be_complete=True)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("total", [5, None, "of the page"])
async def test_every_instance_is_listed_once_wherever_pages_begin(first: int, total: int | str | None):
    def pages(request: Request) -> bytes:
        place = int(request.target.partition("pageNum=")[2].partition("&")[0]) - first
        if place < 0:
            return answer(400, {"code": 400, "reason": "VALIDATOR_PARAM", "message": "pageNum"})
        items = [{"id": f"n{each}", "status": "running"} for each in range(5)][place * 2 : place * 2 + 2]
        return answer(200, {"instances": items, "total": len(items) if total == "of the page" else total})

    async with provider(pages) as scripted, client_of(scripted.url) as client:
        found = await client.all_instances(must_be_complete=True)
    assert sorted(each.id for each in found) == ["n0", "n1", "n2", "n3", "n4"]


async def test_a_page_size_that_is_refused_is_halved():
    def small_pages(request: Request) -> bytes:
        if "pageSize=25" not in request.target:
            return answer(400, {"code": 400, "reason": "VALIDATOR_PARAM", "message": "pageSize"})
        return answer(200, {"instances": [{"id": "n1", "status": "running"}], "total": 1})

    async with provider(small_pages) as scripted, client_of(scripted.url) as client:
        assert [each.id for each in await client.all_instances()] == ["n1"]


async def test_a_list_that_never_ends_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("server.novita.endpoints.pages.PAGES_MAX", 5)

    def another(request: Request) -> bytes:
        return answer(200, {"instances": [{"id": request.target}], "total": 10**6})

    async with provider(another) as scripted, client_of(scripted.url) as client:
        with pytest.raises(ProviderError, match="does not end"):
            await client.all_instances(page_size=1)


async def test_templates(client: NovitaClient):
    draft = TemplateDraft(
        name="mine",
        image="ubuntu:22.04",
        rootfs_gb=30,
        ports=(Port(80, "http"), Port(22, "tcp"), Port(81, "http")),
        envs=(Env("A", "1"),),
        volumes=(Volume("local", None, 20, "/workspace"),),
        start_command="run",
    )
    template_id = await client.create_template(draft)
    made = await client.template(template_id)
    assert (made.name, made.rootfs_gb, made.start_command) == ("mine", 30, "run")
    assert set(made.ports) == set(draft.ports)
    assert (made.envs, made.volumes[0].size_gb) == (draft.envs, 20)

    await client.update_template(template_id, TemplateDraft(name="mine2", image="ubuntu:24.04", rootfs_gb=30))
    assert (await client.template(template_id)).name == "mine2"
    page = await client.templates(channels=["private", "official"], name="mine2")
    assert [each.id for each in page.items] == [template_id]
    await client.delete_template(template_id)
    with pytest.raises(ProviderNotFound):
        await client.template(template_id)


async def test_a_template_with_unreadable_ports_does_not_hide_the_others():
    listed = answer(
        200,
        {
            "template": [
                {
                    "Id": 1,
                    "name": "broken",
                    "ports": [{"type": "http", "ports": ["eighty"]}, {"type": "tcp", "ports": ["22"]}],
                },
                {"Id": "2", "name": "sound", "ports": [{"type": "http", "ports": [80]}]},
            ],
            "total": 2,
        },
    )
    async with provider(listed) as scripted, client_of(scripted.url) as client:
        broken, sound = (await client.templates()).items
    assert (broken.id, broken.ports) == ("1", (Port(22, "tcp"),))
    assert broken.problems == ("the http ports are not all numbers",)
    assert (sound.ports, sound.problems) == ((Port(80, "http"),), ())


async def test_registry_auths_come_without_a_password(client: NovitaClient):
    await client.save_registry_auth(name="r.example.test", username="u", password=SecretStr("hunter22"))
    saved = next(each for each in await client.registry_auths() if each.name == "r.example.test")
    assert saved.username == "u"
    assert not hasattr(saved, "password")
    await client.delete_registry_auth(saved.id)
    assert saved.id not in {each.id for each in await client.registry_auths()}


async def test_network_storages(client: NovitaClient):
    cluster = next(each for each in await client.clusters() if each.supports_network_storage)
    storage_id = await client.create_network_storage(cluster_id=cluster.id, name="data", size_gb=10)
    await client.update_network_storage(storage_id, name="data2", size_gb=20)
    page = await client.network_storages(name="data2")
    assert [(each.id, each.size_gb, each.region) for each in page.items] == [(storage_id, 20, cluster.code)]
    product = next(
        each
        for each in await client.products(cluster_id=cluster.id)
        if each.is_deployable and (not each.regions or cluster.code in each.regions)
    )
    request = CreateInstance(
        name="with-disk",
        product_id=product.id,
        image="ubuntu",
        rootfs_gb=10,
        cluster_id=cluster.id,
        network_storages=(StorageMount(storage_id, "/data"),),
    )
    made = await client.instance(await client.create_instance(request))
    assert [(each.id, each.mount_path) for each in made.volumes if each.type == "network"] == [(storage_id, "/data")]
    with pytest.raises(ValidationFailed) as refused:
        await client.delete_network_storage(storage_id)
    assert refused.value.reason == "NETWORK_STORAGE_IN_USE"


async def test_networks(client: NovitaClient):
    cluster = next(each for each in await client.clusters() if each.supports_networks)
    await client.create_network(cluster_id=cluster.id, name="lan")
    page = await client.networks(name="lan")
    assert page.total == 1
    network = page.items[0]
    await client.update_network(network.id, name="lan2")
    assert (await client.network(network.id)).name == "lan2"
    await client.delete_network(network.id)
    with pytest.raises(ProviderNotFound):
        await client.network(network.id)


async def test_jobs_prewarming_and_metrics(client: NovitaClient, simulator: Simulator):
    novita_id = await client.create_instance(await request_for(client))

    async def read() -> RemoteInstance:
        return await client.instance(novita_id)

    await until(read, "running")
    metrics = await client.metrics(novita_id, interval=timedelta(seconds=20))
    assert all(0 <= sample.percent <= 100 for sample in metrics.cpu)
    assert set(metrics.gpu.by_gpu) == {"0"}
    await client.stop_instance(novita_id)
    await until(read, "exited")
    simulator.world.set_speed(1)
    job_id = await client.save_image(novita_id, image="r.example.test/saved:1")
    await client.break_job(job_id)
    jobs = await client.jobs(job_id=job_id)
    assert [(each.type, each.state, each.instance_id) for each in jobs.items] == [("saveImage", "break", novita_id)]

    quota = await client.prewarm_quota()
    assert quota.limit is not None
    product = (await client.products())[0]
    cluster = (await client.clusters())[0]
    prewarm_id = await client.prewarm(image="ubuntu", cluster_id=cluster.id, product_ids=[product.id], note="a")
    await client.edit_prewarm(prewarm_id, note="b")
    page = await client.prewarms(cluster_id=cluster.id)
    assert [(each.id, each.note) for each in page.items] == [(prewarm_id, "b")]
    await client.delete_prewarms([prewarm_id])
    assert (await client.prewarms()).items == ()


async def test_a_wrong_key_is_an_auth_failure():
    async with Simulator(SimulatorOptions(api_keys=("sk_right",))) as simulator, client_of(simulator.url) as client:
        with pytest.raises(AuthFailed):
            await client.clusters()


async def test_what_goes_over_the_wire_is_exactly_what_the_contract_says():
    async with provider(answer(200, {"id": "n1"})) as scripted, client_of(scripted.url) as client:
        request = CreateInstance(
            name="a",
            product_id="p",
            image="i",
            rootfs_gb=10,
            ports=(Port(8888, "http"), Port(22, "tcp")),
            tools=(Tool("Jupyter", 8888, "http"),),
            billing_mode="spot",
            network_storages=(StorageMount("s1", "/network"),),
            image_auth=SecretStr("u:p"),
        )
        assert await client.create_instance(request) == "n1"
        sent = scripted.requests[0]

    assert (sent.method, sent.target) == ("POST", "/gpu-instance/openapi/v1/gpu/instance/create")
    assert sent.headers["authorization"] == f"Bearer {KEY}"
    assert sent.headers["content-type"] == "application/json"
    assert sent.headers["user-agent"] == f"pilotlight/{__version__}"
    assert orjson.loads(sent.body) == {
        "name": "a",
        "productId": "p",
        "imageUrl": "i",
        "rootfsSize": 10,
        "gpuNum": 1,
        "kind": "gpu",
        "ports": "8888/http,22/tcp",
        "tools": [{"name": "Jupyter", "port": "8888", "type": "http"}],
        "billingMode": "spot",
        "networkStorages": [{"Id": "s1", "mountPoint": "/network"}],
        "imageAuth": "u:p",
    }


async def test_an_instance_in_an_envelope_is_read_too():
    wrapped = answer(200, {"instance": {"id": "n1", "status": "running"}})
    async with provider(wrapped) as scripted, client_of(scripted.url) as client:
        assert (await client.instance("n1")).status == "running"


@pytest.mark.parametrize("body", [b"", b"{}", b'{"instanceId":"n1","state":"toStop"}', b"  \n"])
async def test_a_lifecycle_call_may_answer_with_nothing(body: bytes):
    async with provider(answer(200, body)) as scripted, client_of(scripted.url) as client:
        await client.stop_instance("n1")
        assert orjson.loads(scripted.requests[0].body) == {"instanceId": "n1"}


async def test_a_redirect_is_not_followed_with_the_key():
    async with provider(answer(200, {"data": []})) as elsewhere:
        redirect = answer(302, b"", {"Location": f"{elsewhere.url}/steal"})
        async with provider(redirect) as scripted, client_of(scripted.url) as client:
            with pytest.raises(ProviderError):
                await client.clusters()
            assert (len(scripted.requests), len(elsewhere.requests)) == (1, 0)
