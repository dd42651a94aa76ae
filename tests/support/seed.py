"""Seeds one of each kind of row that queries can return."""

from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from schema import ids
from server.auth.caller import Caller
from server.clock import new_id
from server.db.tables import ProjectWebhook, Volume
from server.enums import InstanceStatus, Role
from server.spend.quotas import QuotaDraft, set_quota
from server.webhooks import deliveries
from tests.support.api import Api
from tests.support.machines import make_running
from tests.support.world import World


class Things:
    """What there is to be asked for, so that nothing is refused."""

    def __init__(self, token: str, made: dict[str, str]) -> None:
        self.token = token
        self.made = made

    def __getattr__(self, name: str) -> str:
        return self.made[name]


async def make_things(api: Api) -> Things:
    world = api.world
    token, _ = await world.new_token("default", Role.ADMIN)
    spare, caller = await world.new_token("default")
    assert spare
    port = [{"port": 80, "type": "http"}]
    endpoint = [{"port": 80, "type": "http", "address": "http://127.0.0.1:9"}]
    rows = {
        "ready": await world.put(
            novita_id="m1",
            ports=port,
            endpoints=endpoint,
            webhook_url="http://127.0.0.1:9/x",
            lifetime={"heartbeat": "PT1H"},
        ),
        "exited": await world.put(InstanceStatus.EXITED, novita_id="m2"),
        "busy": await world.put(novita_id="m3"),
        "failed": await world.put(InstanceStatus.FAILED),
    }
    made = {name: ids.format_id(ids.INSTANCE, row.id) for name, row in rows.items()}
    await api.ask("mutation ($id: ID!) { stopInstance(input: {id: $id}) { errors { code } } }", id=made["busy"])
    await api.create(onNoCapacity={"wait": {"for": 3600}})
    job = await world.value("SELECT min(id) FROM job")
    gone = await world.value(
        """INSERT INTO job_history (id, kind, args, priority, status, project_id, run_at, attempts, created_at,
               claimed_at, finished_at, error_code)
           SELECT 900000, kind, args, priority, 'FAILED', project_id, run_at, 3, now(), now(), now(), 'BROKEN'
           FROM job WHERE id = $1 RETURNING id""",
        job,
    )
    async with world.database.write() as session:
        delivery = await deliveries.insert_test_delivery(session, api.caller.project_id, "http://127.0.0.1:9/hook")
        webhook = await put_webhook(session, api.caller, "http://127.0.0.1:9/hook")
    sending = await world.value("SELECT min(id) FROM job WHERE kind = 'SEND_WEBHOOK'")  # serves no operation
    operation = await world.value("SELECT id FROM operation WHERE kind = 'STOP'")
    may_wait = await world.value("SELECT id FROM operation WHERE kind = 'CREATE'")
    failed_operation = await world.value(
        """INSERT INTO operation (id, project_id, instance_id, kind, status, phase, error_code, finished_at)
           VALUES (gen_random_uuid(), $1, $2, 'CREATE', 'FAILED', 'OVER', 'BROKEN', now()) RETURNING id""",
        api.caller.project_id,
        rows["failed"].id,
    )
    await world.execute("INSERT INTO job_pause (kind) VALUES ('RECONCILE')")
    (machine,) = await make_running(world, 1)
    objects = {**await make_objects(api), "providerJob": make_provider_job(world, "m2")}
    volume = await put_volume(world)
    budget, alert = await put_budget(world, api.caller), await put_alert(world, api.caller)
    storage = await world.novita.create_network_storage(cluster_id="us-ca-6", name="by-hand", size_gb=10)
    return Things(
        token,
        made
        | {
            "job": ids.format_job(api.server.runtime.seals, job),
            "sending_job": ids.format_job(api.server.runtime.seals, sending),
            "failed_job": ids.format_job(api.server.runtime.seals, gone),
            "webhook": ids.format_id(ids.WEBHOOK, webhook.id),
            "delivery": ids.format_id(ids.DELIVERY, delivery.id),
            "operation": ids.format_id(ids.OPERATION, operation),
            "may_wait": ids.format_id(ids.OPERATION, may_wait),
            "failed_operation": ids.format_id(ids.OPERATION, failed_operation),
            "a_token": ids.format_id(ids.TOKEN, caller.token_id),
            "machine": machine,
            "budget": ids.format_id(ids.BUDGET, budget),
            "alert": ids.format_id(ids.ALERT, alert),
            "volume": ids.format_id(ids.VOLUME, volume.id),
            "storage": storage,
            **objects,
        },
    )


async def put_budget(world: World, caller: Caller) -> UUID:
    return await world.value(
        """INSERT INTO budget (id, project_id, name, period, timezone, limit_micros, thresholds, action, exempt,
                               horizon_s)
           VALUES (gen_random_uuid(), $1, 'large', 'MONTH', 'UTC', 1000000000000, '[]', 'BLOCK', '[]', 3600)
           RETURNING id""",
        caller.project_id,
    )


async def put_alert(world: World, caller: Caller) -> UUID:
    return await world.value(
        """INSERT INTO market_alert (id, project_id, gpu_count, held_for, cooldown)
           VALUES (gen_random_uuid(), $1, 1, '30 s', '1 h') RETURNING id""",
        caller.project_id,
    )


async def put_webhook(session: AsyncSession, caller: Caller, url: str) -> ProjectWebhook:
    webhook = ProjectWebhook(
        project_id=caller.project_id, url=url, types=["balance.low"], after=0, created_by=caller.token_id
    )
    session.add(webhook)
    await session.flush()
    return webhook


async def put_volume(world: World, **fields: Any) -> Volume:
    """A volume of the project, as if the provider had made it."""
    values: dict[str, Any] = {"name": "seed", "region": "AS-SGP-02", "cluster_id": "as-sgp-2", "size_gb": 50}
    values |= {"status": "AVAILABLE", "novita_id": f"storage-{new_id().hex}", "price_e5": 7, **fields}
    volume = Volume(id=new_id(), project_id=world.caller.project_id, **values)
    async with world.database.write() as session:
        session.add(volume)
    return volume


def make_provider_job(world: World, novita_id: str) -> str:
    """A job of the provider that saves this machine as an image, and does not end by itself."""
    simulated = world.simulator.world
    record = {
        "Id": f"job-of-{novita_id}",
        "user": "1",
        "type": "saveImage",
        "envs": [],
        "logAddress": "",
        "createdAt": "1760000000",
        "instanceId": novita_id,
        "broken": False,
        "runs_at_sim": 0,
        "ends_at_sim": 1e12,
    }
    simulated.put("job", str(record["Id"]), record)
    return ids.format_provider_id(ids.PROVIDER_JOB, str(record["Id"]))


async def make_objects(api: Api) -> dict[str, str]:
    """One of each kind that the project owns at the provider."""
    document = """
        mutation {
          createRegistryAuth(input: {name: "seed.test", username: "u", password: "hunter22hunter"}) {
            registryAuth { id } errors { code message } }
          createTemplate(input: {name: "seed", image: "nginx:1.27"}) { template { id } errors { code message } }
          createNetwork(input: {name: "seed", region: "AS-SGP-02"}) { network { id } errors { code message } }
          prewarmImage(input: {image: "seed:1", region: "AS-SGP-02", productNames: ["RTX 4090 24GB"]}) {
            prewarm { id } errors { code message } }
        }
    """
    data = (await api.ask(document)).data
    names = {"registryAuth": "auth", "template": "tpl", "network": "net", "prewarm": "pre"}
    return {
        field: ids.format_provider_id(names[field], ids.provider_id(names[field], made["id"]))
        for payload in data.values()
        for field, made in payload.items()
        if field in names
    }


async def put_quota(world: World, caller: Caller) -> UUID:
    async with world.database.write() as session:
        row = await set_quota(session, QuotaDraft(max_gpus=1000), project_id=caller.project_id)
    assert row is not None
    return row.id
