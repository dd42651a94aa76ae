"""Everything that the asynchronous client can do. PILOTLIGHT_TOKEN=... python use_async_client.py NAME"""

import asyncio
import base64
import sys
from datetime import datetime, timedelta, timezone
from decimal import Decimal

from pilotlight_client import AsyncPilotlight, NotFound, OperationFailed, Refused, WaitTimedOut
from standardwebhooks import Webhook

PRODUCT = "RTX 4090 24GB"


async def main(name: str) -> None:
    async with AsyncPilotlight() as client:
        quote = await client.quote(product=PRODUCT, lifetime={"max_duration": timedelta(hours=4)})
        assert quote.best is not None
        assert quote.quote_id is not None
        print(f"{quote.best.region}: {quote.price_per_hour}, at most {quote.max_cost}")
        try:
            await client.check(name=name, product="RTX 9999", image="nginx")
        except Refused as refused:
            print(refused.code)

        # Exactly the quoted machine, at most 10 % dearer, or none.
        accepted = await client.create(
            name=name,
            product=PRODUCT,
            image="nginx",
            ports=[{"port": 80}],
            labels={"team": "vision"},
            lifetime={"max_duration": timedelta(hours=4)},
            quote_id=quote.quote_id,
            max_price_drift=0.1,
        )
        try:
            operation = await client.wait(accepted, timeout=timedelta(minutes=10))
        except OperationFailed as failed:
            sys.exit(f"{failed} {failed.operation.error and failed.operation.error.help}")
        except WaitTimedOut as slow:
            sys.exit(f"{slow}: it goes on without this program")
        print(operation.kind, (await client.operation(operation.id)).status)

        instance = await client.get(name)
        print(instance.status, [endpoint.address for endpoint in instance.endpoints])
        print([each.name async for each in client.list(labels={"team": "vision"}, statuses=["READY"])])
        print((await anext(client.watch(name))).version, [each.progress async for each in client.follow(operation.id)])
        access, log = await client.ssh_access(name), await client.log(name)
        print(access.command.split()[0], len(log), len(await anext(client.follow_log(name))))
        print((await client.extend(name, by=timedelta(hours=1))).lifetime, await client.heartbeat(name))
        await client.wait(await client.update(name, labels={"team": "speech"}))
        cursor = await client.head()
        await client.stop(name)
        print((await anext(client.events(after=cursor, ids=[instance.id]))).type)
        for verb in (client.start, client.restart, client.migrate):
            open_operation = (await client.get(name)).open_operation
            if open_operation is not None:
                await client.wait(open_operation)
            await client.wait(await verb(name))
        print(len(await client.products(name="4090")), [token.name async for token in client.tokens()])
        polled, (events, _) = await client.poll(operation.id, timeout=1), await client.event_page(after=cursor, first=5)
        print(polled.status, len(events))
        policy, spent = await client.lifetime_policy(), await client.spend(group_by="PRODUCT")
        print(policy.required, spent.total)
        await client.wait(await client.delete(name))
        await use_money_and_disks(client, name)

        # For the length of a block. If this program is killed, the server deletes the instance two minutes later.
        async with client.instance(name=f"{name}-2", product=PRODUCT, image="nginx", ports=[{"port": 80}]) as machine:
            print(machine.address(80), (await machine.refresh()).status)
        await use_market(client)
        third = await client.create(
            name=f"{name}-3", product=PRODUCT, image="nginx", on_no_capacity={"wait": {"for": timedelta(hours=1)}}
        )
        try:
            print((await client.update_wait(third.operation.id, priority=80)).kind)
            print((await client.cancel(third.operation.id)).status)
        except Refused as refused:  # too late
            print(refused.code)
            await client.delete(third.instance.id)
        try:
            await client.get("no such instance")
        except NotFound as missing:
            print(missing)
        try:
            await client.revoke_token("no such token")
        except Refused as refused:
            print(refused.code)
    await receive_webhook()


async def use_money_and_disks(client: AsyncPilotlight, name: str) -> None:
    budget = await client.create_budget(name=name, limit=Decimal(50), period="MONTH", scope={"project": True})
    print([each.remaining async for each in client.budgets() if each.id == budget.id])
    await client.delete_budget(budget.id)
    volume = await client.create_volume(name=name, region="AS-SGP-02", size_gb=10)
    while volume.status == "CREATING":
        await asyncio.sleep(0.1)
        (volume,) = [each async for each in client.volumes() if each.id == volume.id]
    larger = await client.update_volume(volume.id, size_gb=20)
    print(larger.size_gb, (await client.delete_volume(volume.id)).status)


async def use_market(client: AsyncPilotlight) -> None:
    offers = await client.market(product_names=[PRODUCT], available_only=True)
    history = await client.offer_history(PRODUCT, region="AS-SGP-02", billing_mode="ON_DEMAND")
    print(len(offers), len(history))
    alert = await client.create_alert(product_names=[PRODUCT], price_at_most=Decimal("0.01"))
    print([each.cooldown async for each in client.alerts() if each.id == alert.id])
    await client.delete_alert(alert.id)


async def receive_webhook() -> None:
    """What a receiver does with the headers and the body of a request."""
    secret = "whsec_" + base64.b64encode(b"of the project, by rotateWebhookSecret").decode()
    body, at = '{"type": "instance.ready"}', datetime.now(timezone.utc)
    signature = Webhook(secret).sign("msg_1", at, body)
    headers = {"webhook-id": "msg_1", "webhook-timestamp": str(int(at.timestamp())), "webhook-signature": signature}
    client = AsyncPilotlight()
    try:
        print(client.verify_webhook(secret, body, headers)["type"])
    finally:
        await client.aclose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
