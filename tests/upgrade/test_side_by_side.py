"""Processes of the previous release and of this one share a database during an upgrade."""

import re
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from server.db.database import Database
from server.db.migrate import current_revision, known_head
from tests.support.aging import AGE
from tests.support.databases import DatabaseMaker
from tests.support.processes import ROOT, Pilotlight, control, free_port, pilotlight, run
from tests.support.receiver import Receiver, receiving
from tests.support.waiting import until
from tests.support.watcher import STORY, GraphQLClient, positions, story_of
from tests.upgrade.release import PREVIOUS_HEAD, command_of, previous_release

NEW = None  # the command of this release, forked from a process that has imported it
LIMITED = """
    mutation ($deadline: DateTime!) {
      createInstance(input: {name: "limited", productName: "RTX 4090 24GB", image: "nginx", ports: [{port: 80}],
                             lifetime: {deadline: $deadline}}) {
        instance { id } errors { code }
      }
    }
"""
POLICY = "mutation { setLifetimePolicy(input: {defaultMaxDuration: 7200}) { errors { code } } }"
IDLE = """
    mutation {
      createInstance(input: {name: "idle", productName: "RTX 4090 24GB", image: "nginx", ports: [{port: 80}],
                             lifetime: {idle: {}}}) {
        instance { id lifetime { maxDuration } } errors { code }
      }
    }
"""
NEXT = "query ($id: ID!) { instance(id: $id) { lifetime { next { at reason } } } }"

HOOK = """
    mutation ($url: String!) {
      createWebhook(input: {url: $url, types: ["instance.starting", "instance.ready", "balance.low"]}) {
        errors { code message }
      }
    }
"""
ANNOUNCE = """
    INSERT INTO outbox (id, type, project_id, data)
    SELECT gen_random_uuid(), 'balance.low', project_id, '{"values": {"balanceMicros": 1}}' FROM token LIMIT 1
"""

RECOVERED = """
    mutation {
      createInstance(input: {name: "recovered", productName: "RTX 4090 24GB", image: "nginx", ports: [{port: 80}],
                             recovery: {allowDataLoss: true, replaceBeforeReclaim: true}}) {
        instance { id recovery { drain } } errors { code }
      }
    }
"""
START = """
    mutation ($id: ID!) {
      startInstance(input: {id: $id, steps: [SAME, MIGRATE], allowDataLoss: true}) { errors { code } }
    }
"""
DELETE = "mutation ($id: ID!) { deleteInstance(input: {id: $id}) { errors { code } } }"
STOP = "mutation ($id: ID!) { stopInstance(input: {id: $id}) { errors { code } } }"
MACHINES = "query ($id: ID!) { instance(id: $id) { novitaId machines { number novitaId endReason } } }"

VOLUME = """
    mutation {
      createVolume(input: {name: "during", region: "US-CA-06", sizeGb: 10}) { volume { id } errors { code } }
    }
"""
DELETE_VOLUME = "mutation ($id: ID!) { deleteVolume(input: {id: $id}) { errors { code } } }"
VOLUME_STATUS = "query ($id: ID!) { node(id: $id) { ... on Volume { status } } }"

ALERT = """
    mutation {
      createAlert(input: {productNames: ["RTX 4090 24GB"], heldFor: 0}) { alert { id } errors { code } }
    }
"""
ALERTED = '{ projectEvents(filter: {types: ["market.alert"]}) { nodes { alert { id } } } }'

QUOTA = """
    mutation {
      setQuota(input: {scope: {label: {key: "spend", value: "counted"}}, maxInstances: 2}) { errors { code } }
    }
"""
BUDGET = """
    mutation {
      createBudget(input: {name: "all", scope: {project: true}, period: TOTAL, thresholds: [1], action: NOTIFY,
                           limit: {amountMicros: 1000, currency: "USD"}}) { errors { code } }
    }
"""
AGENT = """
    mutation {
      createToken(input: {name: "agent", role: OPERATOR, limits: {productNames: ["L40S 48GB"], maxInstances: 1}}) {
        secret errors { code }
      }
    }
"""
COUNTED = """
    mutation ($name: String!) {
      createInstance(input: {name: $name, productName: "RTX 4090 24GB", image: "nginx", ports: [{port: 80}],
                             labels: [{key: "spend", value: "counted"}]}) {
        instance { id } errors { code }
      }
    }
"""
SYNC_SPEND = "mutation { syncSpend { errors { code } } }"
SPENT = """
    {
      quotas { nodes { usedInstances maxInstances scope { tokenId } } }
      spend(groupBy: INSTANCE) { groups { key paidTime } }
      tokens(first: 100) { nodes { name isSession limits { productNames quota { maxInstances } } } }
      auditEvents(first: 100) { nodes { mutation outcome errorCode } }
    }
"""
# Nothing of this product is free at first.
PATIENT = """
    mutation ($name: String!) {
      createInstance(input: {name: $name, productName: "H200 SXM 141GB", image: "nginx", ports: [{port: 80}],
                             onNoCapacity: {wait: {for: 3600}}}) {
        instance { id } operation { id } errors { code }
      }
    }
"""
WAIT = "query ($id: ID!) { operation(id: $id) { status wait { position } } }"

LABELS = 'labels: [{key: "a", value: "b"}]'
RESULT = "instance { id } operation { id } errors { code }"
FULL = """gpuCount: 1 rootfsSizeGb: 80 region: "AS-SGP-02" regions: ["CN-HK-01"] billing: SPOT command: "run"
    maxHourlyPrice: {amountMicros: 2000000} env: [{key: "HF_TOKEN", value: "x"}] ports: [{port: 8080, type: "http"}]
    labels: [{key: "team", value: "a"}] healthCheck: {path: "/"}"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@dataclass
class Both:
    """What runs, and how to run more of either kind."""

    stack: AsyncExitStack
    old: tuple[str, ...]
    environment: dict[str, str]
    url: str

    async def api(self, command: tuple[str, ...] | None) -> tuple[Pilotlight, str]:
        port = free_port()
        process = await self.stack.enter_async_context(
            pilotlight("serve", "--port", str(port), env=self.environment, command=command)
        )
        await process.says("api.ready")
        return process, f"http://127.0.0.1:{port}/graphql"

    async def worker(self, command: tuple[str, ...] | None, **settings: str) -> Pilotlight:
        environment = self.environment | settings
        process = await self.stack.enter_async_context(pilotlight("worker", env=environment, command=command))
        await process.says("worker.ready")
        return process

    async def migrate(self, command: tuple[str, ...] | None) -> None:
        done = await run("migrate", env=self.environment, command=command)
        assert done.code == 0, done.said

    async def revision(self) -> str | None:
        database = Database(self.url, pool_size=1)
        try:
            return await current_revision(database)
        finally:
            await database.close()

    async def value(self, query: str, *values: object) -> object:
        database = Database(self.url, pool_size=1)
        try:
            return await database.raw.fetchval(query, *values)
        finally:
            await database.close()


@pytest.fixture
async def both(new_database: DatabaseMaker, tmp_path: Path) -> AsyncIterator[Both]:
    folder = tmp_path / "previous"
    folder.mkdir()
    if previous_release(folder) is None:
        pytest.skip(f"git does not know the release that ended with migration {PREVIOUS_HEAD}")
    url = await new_database()
    port = free_port()
    environment = {
        "DATABASE_URL": url,
        "NOVITA_API_KEY": "sk_upgrade",
        "NOVITA_API_BASE_URL": f"http://127.0.0.1:{port}",
        "LOG_FORMAT": "json",
        "WEBHOOK_SIGNING_KEY": "the same for the processes of both releases",
        "ALLOW_PRIVATE_WEBHOOKS": "loopback",
        "MARKET_HOT": "1s",
        "MARKET_CALLS": "1000",
        "RECONCILE_INTERVAL": "5s",
        "NOVITA_RATE_LIMIT": "6000",  # without a limit, reading metrics needs no row
    }
    async with AsyncExitStack() as stack:
        simulator = (sys.executable, "-m", "server.simulator")
        process = await stack.enter_async_context(
            pilotlight("--port", str(port), "--speed", "50", command=simulator, env={"PYTHONPATH": str(ROOT)})
        )
        await until(lambda: _printed(process))
        yield Both(stack, command_of(folder), environment, url)


async def _arrived(receiver: Receiver, ids: list[str]) -> bool:
    stories = [[got.type for got in receiver.got if got.message["data"]["instanceId"] == id] for id in [*ids, None]]
    return stories == [["instance.starting", "instance.ready"]] * len(ids) + [["balance.low"]]


async def _volume_is(by: GraphQLClient, id: str, expected: dict[str, str] | None) -> bool:
    return (await by.ask(VOLUME_STATUS, id=id))["node"] == expected


async def new_defaults(by_old: GraphQLClient, by_new: GraphQLClient, type: str) -> str:
    """The fields of an input that the previous release lacks, each with its default, as a client may send them."""
    document = f'{{ __type(name: "{type}") {{ inputFields {{ name defaultValue }} }} }}'
    old, new = [(await each.ask(document))["__type"]["inputFields"] for each in (by_old, by_new)]
    known = {field["name"] for field in old}
    added = [field for field in new if field["name"] not in known and field["defaultValue"] is not None]
    return " ".join(f"{field['name']}: {field['defaultValue']}" for field in added)


async def is_found_by_both(
    first: GraphQLClient, second: GraphQLClient, mutation: str, inputs: dict[GraphQLClient, str]
) -> str:
    """Accepted by one release, and found by the other when it is sent again; returns the instance's id."""

    async def send(client: GraphQLClient) -> dict[str, Any]:
        document = f"mutation {{ it: {mutation}(input: {{{inputs[client]}}}) {{ replayed {RESULT} }} }}"
        return (await client.ask(document))["it"]

    accepted, again = await send(first), await send(second)
    assert (accepted["errors"], accepted["replayed"]) == ([], False)
    assert again == {**accepted, "replayed": True}
    return str(accepted["instance"]["id"])


async def check_retries(by_old: GraphQLClient, by_new: GraphQLClient) -> None:
    """A request that is sent again to a process of the other release finds what was accepted, in both directions."""
    added = {
        mutation: await new_defaults(by_old, by_new, f"{mutation[0].upper()}{mutation[1:]}Input")
        for mutation in ("createInstance", "updateInstance", "deleteInstance")
    }
    assert "kind: GPU" in added["createInstance"]
    assert "placement: null" in added["createInstance"]

    def inputs(mutation: str, name: str, given: str) -> dict[GraphQLClient, str]:
        """The new release gets the defaults of its new fields, too."""
        given = f'{given} idempotencyKey: "{mutation} {name}"'
        return {by_old: given, by_new: f"{given} {added[mutation]}"}

    for number, (first, second) in enumerate([(by_old, by_new), (by_new, by_old)]):
        for name, more in ((f"plain-{number}", ""), (f"full-{number}", FULL)):
            create = f'name: "{name}" productName: "RTX 4090 24GB" image: "nginx" {more}'
            id = await is_found_by_both(first, second, "createInstance", inputs("createInstance", name, create))
            await by_new.becomes(id, "READY", within=60)
            for mutation, given in (("updateInstance", LABELS), ("deleteInstance", "")):
                await is_found_by_both(first, second, mutation, inputs(mutation, name, f'id: "{id}" {given}'))


async def check_steps(by_old: GraphQLClient, by_new: GraphQLClient, id: str) -> None:
    """A start by steps, whose job the old workers leave alone; its machine has a row, whichever worker linked it."""
    assert (await by_old.ask(STOP, id=id))["stopInstance"]["errors"] == []
    await by_new.becomes(id, "EXITED", within=60)
    assert (await by_new.ask(START, id=id))["startInstance"]["errors"] == []
    await by_old.becomes(id, "READY", within=60)
    shown = (await by_new.ask(MACHINES, id=id))["instance"]
    rows = [{"number": 1, "novitaId": shown["novitaId"], "endReason": None}]
    assert shown["machines"] in ([], rows)  # none if an old worker linked it: reconcile adds it


async def check_reading(both: Both, by_new: GraphQLClient, id: str) -> None:
    """The metrics of an idle-watched instance are read by new workers; by then it may be armed only by reconcile.

    Which of the workers saw the machine run is left to chance: an old one knows no lifetime, so it arms nothing.
    """
    instance = f"'{id.removeprefix('inst_')}'::uuid"
    armed = f"SELECT run_accepted_at IS NOT NULL AND lifetime_reason = 'IDLE' FROM instance WHERE id = {instance}"
    waiting = f"SELECT true FROM job WHERE unique_key = 'lifetime ' || {instance} AND status = 'WAITING'"
    await until(lambda: _is_true(both, armed), within=60)
    await until(lambda: _is_true(both, waiting), within=60)
    assert await both.value("SELECT count(*) FROM metrics_reading") == 0
    # The window has passed.
    await both.value(AGE, UUID(id.removeprefix("inst_")), timedelta(hours=1))
    await both.value(f"UPDATE job SET run_at = now(), due_at = now() WHERE unique_key = 'lifetime ' || {instance}")

    await until(lambda: _is_true(both, "SELECT count(*) = 1 FROM metrics_reading"), within=60)

    # Too few samples are there, so it counts as busy.
    later = f"SELECT lifetime_due_at > now() AND lifetime_state ? 'blind' FROM instance WHERE id = {instance}"
    await until(lambda: _is_true(both, later), within=60)
    assert (await by_new.ask(NEXT, id=id))["instance"]["lifetime"]["next"]["reason"] == "IDLE"
    assert await both.value(f"SELECT count(*) FROM operation WHERE instance_id = {instance} AND kind = 'STOP'") == 0


async def _is_true(both: Both, query: str) -> bool:
    return bool(await both.value(query))


def counted_by(spent: dict[str, Any]) -> list[tuple[int, int]]:
    """Use and maximum of the quotas that are not a token's."""
    quotas = [each for each in spent["quotas"]["nodes"] if each["scope"]["tokenId"] is None]
    return [(each["usedInstances"], each["maxInstances"]) for each in quotas]


async def _is_in_ledger(both: Both, id: str, *, is_paid: bool) -> bool:
    """A reconcile of the new release writes it; the old worker takes some of the runs."""
    await both.value("UPDATE job_schedule SET next_at = now() WHERE kind = 'RECONCILE'")
    instance_id = UUID(id.removeprefix("inst_"))
    count = await both.value("SELECT count(*) FROM cost_entry WHERE ended_at IS NULL AND instance_id = $1", instance_id)
    return count == is_paid


async def _has_fired(by: GraphQLClient, alert: dict[str, str]) -> bool:
    return (await by.ask(ALERTED))["projectEvents"]["nodes"] == [{"alert": alert}]


async def begin_wait(by: GraphQLClient, old_worker: Pilotlight) -> tuple[str, str]:
    """A create that waits, as instance and operation. The old worker, which does not know how to wait, is paused."""
    with old_worker.paused():
        accepted = (await by.ask(PATIENT, name="patient"))["createInstance"]
        assert accepted["errors"] == []
        operation = str(accepted["operation"]["id"])
        await until(lambda: _is_waiting(by, operation), within=60)
    return str(accepted["instance"]["id"]), operation


async def _is_waiting(by: GraphQLClient, operation: str) -> bool:
    found = (await by.ask(WAIT, id=operation))["operation"]
    assert found["status"] != "FAILED"
    return found["wait"] is not None


async def _printed(process: Pilotlight) -> bool:
    assert process.process.returncode is None, process.said
    return "http://" in process.printed


async def test_old_and_new_processes_share_jobs_and_subscribers_on_one_database(both: Both):
    await both.migrate(both.old)
    assert await both.revision() == PREVIOUS_HEAD
    old_api, old_url = await both.api(both.old)
    old_worker = await both.worker(both.old, JOB_LEASE="120s")  # longer than it is paused
    secret = (await run("token", "create", "upgrade", env=both.environment, command=both.old)).printed.split()[-1]
    by_old = GraphQLClient(old_url, secret)
    before = await by_old.create("before")
    await by_old.becomes(before, "READY", within=60)

    # Everything of the old release runs on while the tables get their new shape.
    await both.migrate(NEW)
    assert await both.revision() == known_head()
    new_api, new_url = await both.api(NEW)
    new_worker = await both.worker(NEW)
    by_new = GraphQLClient(new_url, secret)

    receiver = await both.stack.enter_async_context(receiving())
    admin = (await run("token", "create", "hooks", "--role", "ADMIN", env=both.environment, command=NEW)).printed
    by_admin = GraphQLClient(new_url, admin.split()[-1])
    hook = (await by_admin.ask(HOOK, url=receiver.url))["createWebhook"]
    assert hook["errors"] == []
    async with by_old.subscribed() as old_stream, by_new.subscribed() as new_stream:
        ids = [await (by_old, by_new)[number % 2].create(f"during-{number}") for number in range(12)]
        # A limit that the old processes do not know: they leave its job alone, and lose neither it nor its time.
        deadline = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        limited = (await by_new.ask(LIMITED, deadline=deadline))["createInstance"]
        assert limited["errors"] == []
        ids.append(limited["instance"]["id"])
        # The project's policy, which the old processes do not know either.
        assert (await by_admin.ask(POLICY))["setLifetimePolicy"]["errors"] == []
        idle = (await by_new.ask(IDLE))["createInstance"]
        assert (idle["errors"], idle["instance"]["lifetime"]["maxDuration"]) == ([], 7200)
        ids += [idle["instance"]["id"], await by_old.create("by-the-old-one")]
        # Recovery, which the old processes do not know.
        recovered = (await by_new.ask(RECOVERED))["createInstance"]
        assert (recovered["errors"], recovered["instance"]["recovery"]) == ([], {"drain": 60})
        ids.append(recovered["instance"]["id"])
        # A volume, whose jobs the old workers leave alone.
        volume = (await by_new.ask(VOLUME))["createVolume"]
        assert volume["errors"] == []
        # An alert: the old workers leave the job alone that polls the market and fires it.
        alert = (await by_new.ask(ALERT))["createAlert"]
        assert alert["errors"] == []
        # A create that waits for capacity: the old workers leave its one job alone.
        patient, waiting = await begin_wait(by_new, old_worker)
        # An event without an instance: the old processes pass it by.
        await both.value(ANNOUNCE)
        seen_by_old = await old_stream.until("READY", *ids)
        seen_by_new = await new_stream.until("READY", *ids)
    for id in ids:
        assert story_of(seen_by_old, id) == story_of(seen_by_new, id) == STORY
        assert (await by_old.instance(id))["novitaId"] == (await by_new.instance(id))["novitaId"] is not None
    await until(lambda: _volume_is(by_new, volume["volume"]["id"], {"status": "AVAILABLE"}), within=60)
    assert (await by_new.ask(DELETE_VOLUME, id=volume["volume"]["id"]))["deleteVolume"]["errors"] == []
    await until(lambda: _volume_is(by_new, volume["volume"]["id"], None), within=60)
    shown = (await by_new.ask(NEXT, id=limited["instance"]["id"]))["instance"]["lifetime"]["next"]
    assert (datetime.fromisoformat(shown["at"]), shown["reason"]) == (datetime.fromisoformat(deadline), "DEADLINE")
    of_limited = limited["instance"]["id"].removeprefix("inst_")
    assert await both.value(f"SELECT count(*) FROM job WHERE unique_key = 'lifetime ' || '{of_limited}'::uuid") == 1
    assert (await by_new.ask(NEXT, id=ids[-2]))["instance"]["lifetime"] is None  # the old one knows no policy
    # The project's webhook gets the events that processes of both releases wrote, in order.
    await until(lambda: _arrived(receiver, ids), within=60)
    log = await by_new.log()
    assert positions(seen_by_new, log) == sorted(set(positions(seen_by_new, log)))
    await until(lambda: _has_fired(by_new, alert["alert"]), within=60)
    await check_retries(by_old, by_new)
    await check_steps(by_old, by_new, recovered["instance"]["id"])
    await check_reading(both, by_new, idle["instance"]["id"])

    assert "job.done" in old_worker.said.partition("worker.ready")[2], old_worker.said
    assert "job.done" in new_worker.said, new_worker.said
    for process in (old_api, old_worker, new_api, new_worker):
        assert process.process.returncode is None, process.said
        errors = [line for line in process.said.splitlines() if re.search('"level": ?"error"', line)]
        if process is old_worker:  # it says that it lost its lease while it was paused
            errors = [line for line in errors if '"server.queue.lease"' not in line]
        assert errors == []

    # The old ones go; who watched there goes on where it was, with what it knew.
    assert await old_api.stop() == 0
    assert await old_worker.stop() == 0
    # The wait goes on, and so it does when the worker is killed and another one starts.
    assert (await by_new.ask(WAIT, id=waiting))["operation"] == {"status": "RUNNING", "wait": {"position": 1}}
    await new_worker.kill_tree()
    stock = {"productId": "h200.24c220g", "clusterId": "eu-gb-1", "free": 1}
    await control(both.environment["NOVITA_API_BASE_URL"], "stock", stock)
    await both.worker(NEW)
    await by_new.becomes(patient, "READY", within=60)
    last = seen_by_old[-1]["cursor"]
    async with by_new.subscribed(after=last) as stream:
        after = await by_new.create("after")
        seen = await stream.until("READY", after)
    rest = [event["id"] for event in seen_by_new if positions([event], log) > positions(seen_by_old[-1:], log)]
    assert [event["id"] for event in seen][: len(rest)] == rest
    assert story_of(seen, after) == STORY


async def test_machines_of_both_releases_are_in_the_ledger_and_count(both: Both):
    await both.migrate(both.old)
    _, old_url = await both.api(both.old)
    await both.worker(both.old)
    secret = (await run("token", "create", "upgrade", env=both.environment, command=both.old)).printed.split()[-1]
    by_old = GraphQLClient(old_url, secret)
    before = await by_old.create("before")
    await by_old.becomes(before, "READY", within=60)

    await both.migrate(NEW)
    _, new_url = await both.api(NEW)
    await both.worker(NEW)
    by_new = GraphQLClient(new_url, secret)
    admin = (await run("token", "create", "money", "--role", "ADMIN", env=both.environment, command=NEW)).printed
    by_admin = GraphQLClient(new_url, admin.split()[-1])
    await until(lambda: _is_in_ledger(both, before, is_paid=True), within=60)

    # What the old processes accept and start is refused by nothing, and counts once reconcile has written it.
    assert (await by_admin.ask(QUOTA))["setQuota"]["errors"] == []
    assert (await by_admin.ask(BUDGET))["createBudget"]["errors"] == []
    counted = [(await each.ask(COUNTED, name=name))["createInstance"] for each, name in ((by_old, "a"), (by_new, "b"))]
    assert [each["errors"] for each in counted] == [[], []]
    ids = [each["instance"]["id"] for each in counted]
    for id in ids:
        await by_new.becomes(id, "READY", within=60)
        await until(lambda id=id: _is_in_ledger(both, id, is_paid=True), within=60)
    spent = await by_admin.ask(SPENT)
    assert counted_by(spent) == [(2, 2)]
    third = (await by_new.ask(COUNTED, name="third"))["createInstance"]
    assert [each["code"] for each in third["errors"]] == ["PROJECT_QUOTA_EXCEEDED"]

    # A threshold is announced once by the new workers; the old ones leave their jobs alone.
    announced = "SELECT count(*) FROM budget_mark WHERE mark = '1'"
    await until(lambda: _is_true(both, f"SELECT ({announced}) = 1"), within=60)
    await until(lambda: _is_true(both, "SELECT count(*) = 1 FROM event WHERE type = 'budget.threshold'"), within=60)

    # A token with limits, which only the new processes know.
    agent = (await by_admin.ask(AGENT))["createToken"]
    by_agent = GraphQLClient(new_url, agent["secret"])
    refused = (await by_agent.ask(COUNTED, name="agents"))["createInstance"]
    assert [each["code"] for each in refused["errors"]] == ["TOKEN_LIMIT_EXCEEDED"]

    # Days before the ledger are not compared with the bill.
    assert (await by_admin.ask(SYNC_SPEND))["syncSpend"]["errors"] == []
    assert await both.value("SELECT count(*) FROM bill_difference") == 0

    # The old processes end what the ledger has begun.
    assert (await by_old.ask(DELETE, id=ids[1]))["deleteInstance"]["errors"] == []
    await by_new.becomes(ids[1], "DELETED", within=60)
    await until(lambda: _is_in_ledger(both, ids[1], is_paid=False), within=60)
    spent = await by_admin.ask(SPENT)
    assert counted_by(spent) == [(1, 2)]
    groups = {each["key"]: each["paidTime"] for each in spent["spend"]["groups"]}
    assert groups.keys() == {before, *ids}
    assert all(each > 0 for each in groups.values())
    tokens = {each["name"]: each["limits"] for each in spent["tokens"]["nodes"]}
    assert tokens["agent"] == {"productNames": ["L40S 48GB"], "quota": {"maxInstances": 1}}
    outcomes = {(each["mutation"], each["errorCode"]) for each in spent["auditEvents"]["nodes"]}
    assert {("setQuota", None), ("createInstance", "PROJECT_QUOTA_EXCEEDED")} <= outcomes
