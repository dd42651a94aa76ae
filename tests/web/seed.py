"""Seeds a small fleet with an example of everything, for screenshots and for tests of every view."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
import asyncpg

from tests.support.processes import Up, control
from tests.support.waiting import until
from tests.web.requests import ask as ask_page

CREATE = """
    mutation ($input: CreateInstanceInput!) {
      createInstance(input: $input) { instance { id } errors { code message } }
    }
"""
OBJECTS = """
    mutation {
      createTemplate(input: {name: "llama-serving", image: "vllm/vllm-openai:v0.9", ports: [{port: 8000}]}) {
        errors { code } }
      createNetwork(input: {name: "training", region: "AS-SGP-02"}) { errors { code } }
      prewarmImage(input: {image: "vllm/vllm-openai:v0.9", region: "AS-SGP-02", productNames: ["RTX 4090 24GB"],
                           note: "for the nightly run"}) { errors { code } }
      createWebhook(input: {url: "http://127.0.0.1:9/project", types: ["balance.low", "instance.failed"]}) {
        errors { code } }
    }
"""
CREATE_VOLUME = "mutation ($input: CreateVolumeInput!) { createVolume(input: $input) { errors { code message } } }"
STATUS = "query ($id: ID!) { instance(id: $id) { status novitaId } }"
FLEET = (
    ("llama-70b-serving", "H100 SXM 80GB", 2, {"team": "research"}),
    ("trainer-nightly", "A100 SXM4 80GB", 4, {"team": "research"}),
    ("embeddings", "L40S 48GB", 1, {"team": "search"}),
    ("notebook-ana", "RTX 4090 24GB", 1, {"owner": "ana"}),
    ("notebook-jun", "RTX 3090 24GB", 1, {"owner": "jun"}),
    ("render-farm-1", "RTX 5090 32GB", 1, {"team": "media"}),
)


# As reconcile does when it finds the balance low.
ANNOUNCE = """
    INSERT INTO outbox (id, type, project_id, data)
    SELECT gen_random_uuid(), 'balance.low', id, '{"values": {"balanceMicros": 50000000, "runwaySeconds": 9000}}'
    FROM project WHERE name = 'default'
"""


async def announce(running: Up) -> None:
    """Write an event of the project."""
    connection = await asyncpg.connect(running.ready["databaseUrl"])
    await connection.execute(ANNOUNCE)
    await connection.close()


# As the ledger writes it: some hours of each instance on each of the last days.
SPEND = """
    INSERT INTO cost_entry (project_id, instance_id, machine, token_id, labels, price_e5, product_name, region,
                            run_began_at, began_at, ended_at, amount_micros)
    SELECT project_id, id, novita_id, requested_by, labels, price_e5, product_name, region, began, began,
           began + hours * interval '1 hour', price_e5 * 10 * hours
    FROM (SELECT instance.*, coalesce(instance.price_per_hour_e5, 30000) AS price_e5,
                 (SELECT requested_by FROM operation WHERE instance_id = instance.id LIMIT 1) AS requested_by,
                 date_trunc('day', now(), 'UTC') - day * interval '24 hours' AS began,
                 1 + (day * 7 + ascii(right(name, 1))) % 9 AS hours
          FROM instance CROSS JOIN generate_series(1, $1::int) AS day
          WHERE novita_id IS NOT NULL AND (day + ascii(right(name, 1))) % 4 > 0) AS ran
"""
# The same as the ledger on all days but one, on which a quarter more was billed.
BILL = """
    INSERT INTO bill_line (machine, day, project_id, instance_id, amount_micros)
    SELECT machine, day, project_id, instance_id,
           round(sum(amount_micros) * CASE WHEN day = today - 2 THEN 1.25 ELSE 1 END)
    FROM (SELECT cost_entry.*, CAST(began_at AT TIME ZONE 'UTC' AS date) AS day,
                 CAST(now() AT TIME ZONE 'UTC' AS date) AS today
          FROM cost_entry WHERE ended_at IS NOT NULL) AS entry
    WHERE day < today GROUP BY machine, day, today, project_id, instance_id;
    INSERT INTO bill_check (until) VALUES (CAST(now() AT TIME ZONE 'UTC' AS date))
"""
LIMITS = """
    mutation {
      a: setQuota(input: {scope: {project: true}, maxInstances: 20, maxPricePerHour: {amountMicros: 40000000}}) {
        errors { code } }
      b: setQuota(input: {scope: {label: {key: "team", value: "research"}}, maxGpus: 8}) { errors { code } }
      c: createToken(input: {name: "nightly-agent", role: OPERATOR, limits: {
           budget: {amountMicros: 20000000}, maxInstances: 2, maxDuration: 7200, ownInstancesOnly: true,
           productNames: ["RTX 4090 24GB", "L40S 48GB"]}}) { errors { code } }
    }
"""
BUDGETS = """
    mutation {
      a: createBudget(input: {name: "research", limit: {amountMicros: 900000000}, period: MONTH,
                              scope: {label: {key: "team", value: "research"}}, action: STOP}) { errors { code } }
      b: createBudget(input: {name: "everything", limit: {amountMicros: 5000000000}, period: MONTH,
                              scope: {project: true}}) { errors { code } }
    }
"""
LAST_WORDS = ("step 4100 loss 0.2210", "step 4200 loss 0.2188", "CUDA out of memory. Tried to allocate 2.50 GiB")


async def spend(running: Up, days: int = 20) -> None:
    """Write what the instances have cost on each of the last days."""
    connection = await asyncpg.connect(running.ready["databaseUrl"])
    await connection.execute(SPEND, days)
    await connection.close()


async def bill(running: Up) -> None:
    """Write what the provider has billed for the days of the ledger; once per server."""
    connection = await asyncpg.connect(running.ready["databaseUrl"])
    await connection.execute(BILL)
    await connection.close()


async def die(running: Up, novita_id: str) -> None:
    """End a container by itself, after it has written why."""
    for text in LAST_WORDS:
        await control(running.ready["simulatorUrl"], f"instances/{novita_id}/log", {"text": text})
    await control(running.ready["simulatorUrl"], f"instances/{novita_id}/exit", {"code": 137})
    await ask_page(running, "mutation { syncFleet { errors { code } } }")  # not only after the next poll


async def busy(running: Up, novita_id: str) -> None:
    """Let the GPUs of a machine have worked in the last hour, with pauses."""
    now = time.time()
    for minute in range(-60, 5):
        percent = 3 if minute % 20 < 4 else 70 + minute * 7 % 25
        load = {"gpuPercent": percent, "from": now + minute * 60, "to": now + minute * 60 + 60}
        await control(running.ready["simulatorUrl"], f"instances/{novita_id}/load", load)


@dataclass(frozen=True, slots=True)
class Seeded:
    ready: str
    failed: str
    died: str


async def seed(running: Up) -> Seeded:
    """Ready ones, one stopped, one that died, and one whose image can't be pulled, after a region that refused."""
    async with aiohttp.ClientSession(headers={"authorization": f"Bearer {running.token}"}) as session:

        async def ask(document: str, **variables: Any) -> dict[str, Any]:
            body = {"query": document, "variables": variables}
            async with session.post(running.graphql_url, json=body) as response:
                answer = await response.json()
            assert "errors" not in answer, answer
            return dict(answer["data"])

        async def create(name: str, product: str, gpus: int, labels: dict[str, str], **more: Any) -> str:
            given = {
                "name": name,
                "productName": product,
                "gpuCount": gpus,
                "image": "nginx:latest",
                "ports": [{"port": 80}, {"port": 22, "type": "tcp"}],
                "labels": [{"key": key, "value": value} for key, value in labels.items()],
                "regions": ["AS-SGP-02", "CN-HK-01", "AS-IN-01", "US-CA-06", "EU-GB-01"],
                **more,
            }
            payload = (await ask(CREATE, input=given))["createInstance"]
            assert payload["errors"] == [], payload
            return str(payload["instance"]["id"])

        async def until_status(id: str, *statuses: str) -> None:
            async def there() -> bool:
                return (await ask(STATUS, id=id))["instance"]["status"] in statuses

            await until(there, within=60)

        made = [await create(*each) for each in FLEET]
        for id in made:
            await until_status(id, "READY")
        await ask(OBJECTS)
        await control(running.ready["simulatorUrl"], "balance", {"available": 500_000, "charged": False})
        await announce(running)
        await ask("mutation ($id: ID!) { stopInstance(input: {id: $id}) { errors { code } } }", id=made[4])
        await until_status(made[4], "EXITED")
        await die(running, (await ask(STATUS, id=made[1]))["instance"]["novitaId"])
        await until_status(made[1], "EXITED", "FAILED")
        await busy(running, (await ask(STATUS, id=made[0]))["instance"]["novitaId"])
        limit = "mutation ($input: UpdateInstanceInput!) { updateInstance(input: $input) { errors { code } } }"
        lifetime = {"maxDuration": 4 * 3600, "idle": {"window": 1800}}
        recovery = {"allowDataLoss": True, "replaceBeforeReclaim": True, "billing": "ON_DEMAND_AFTER"}
        await ask(limit, input={"id": made[0], "lifetime": {"set": lifetime}, "recovery": {"set": recovery}})

        route = "POST /gpu/instance/create"
        refused = {"status": 400, "reason": "INSUFFICIENT_RESOURCE", "message": "insufficient resource"}
        faults = [
            {"kind": "error", "routes": [route], "times": 1, **refused},
            {"kind": "pullFailure", "routes": [route], "times": 1},
        ]
        await control(running.ready["simulatorUrl"], "faults", {"faults": faults})
        # No server listens on that port, so its deliveries fail.
        failed = await create(
            "sd-finetune",
            "RTX 4090 24GB",
            1,
            {"team": "media"},
            webhookUrl="http://127.0.0.1:9/events",
            image="no/such",
        )
        await until_status(failed, "FAILED")
        await create_volumes(ask)
        await spend(running)
        await bill(running)
        await ask(BUDGETS)
        await ask(LIMITS)
        return Seeded(ready=made[0], failed=failed, died=made[1])


async def create_volumes(ask: Callable[..., Awaitable[dict[str, Any]]]) -> None:
    """One that an instance has, and a free one."""
    for name, size in (("models", 500), ("datasets-and-checkpoints", 2000)):
        given = {"name": name, "region": "US-CA-06", "sizeGb": size}
        payload = (await ask(CREATE_VOLUME, input=given))["createVolume"]
        assert payload["errors"] == [], payload

    async def are_available() -> bool:
        shown = (await ask("{ volumes { nodes { id name status } } }"))["volumes"]["nodes"]
        return all(volume["status"] == "AVAILABLE" for volume in shown)

    await until(are_available, within=60)
    volumes = (await ask("{ volumes { nodes { id name } } }"))["volumes"]["nodes"]
    mounts = [{"id": each["id"], "mountPath": "/models"} for each in volumes if each["name"] == "models"]
    given = {"name": "with-models", "productName": "RTX 4090 24GB", "image": "nginx", "ports": [], "volumes": mounts}
    assert (await ask(CREATE, input=given))["createInstance"]["errors"] == []
