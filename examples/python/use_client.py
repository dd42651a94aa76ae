"""Everything that the Python client can do. PILOTLIGHT_URL=... PILOTLIGHT_TOKEN=... python use_client.py NAME"""

import base64
import sys
import time
from datetime import datetime, timedelta, timezone
from decimal import Decimal

from pilotlight_client import NotFound, OperationFailed, Pilotlight, Refused, WaitTimedOut
from standardwebhooks import Webhook

PRODUCT = "RTX 4090 24GB"


def main(name: str) -> None:
    with Pilotlight() as client:
        quote = client.quote(product=PRODUCT)
        assert quote.best is not None
        print(f"{quote.best.region}: {quote.price_per_hour}")
        try:
            client.check(name=name, product="RTX 9999", image="nginx")
        except Refused as refused:
            print(refused.code)

        accepted = client.create(
            name=name,
            product=PRODUCT,
            image="nginx",
            ports=[{"port": 80}],
            env={"MODE": "fast"},
            labels={"team": "vision"},
            max_hourly_price=Decimal("2.50"),
            lifetime={"max_duration": timedelta(hours=4), "on_end": "DELETE"},
        )
        try:
            operation = client.wait(accepted, timeout=timedelta(minutes=10))
        except OperationFailed as failed:
            sys.exit(f"{failed} {failed.operation.error and failed.operation.error.help}")
        except WaitTimedOut as slow:
            sys.exit(f"{slow}: it goes on without this program")
        print(operation.kind, client.operation(operation.id).status)

        instance = client.get(name)
        print(instance.status, [endpoint.address for endpoint in instance.endpoints])
        print([each.name for each in client.list(labels={"team": "vision"}, statuses=["READY"])])
        print(next(client.watch(name)).version, [each.progress for each in client.follow(operation.id)])
        print(client.ssh_access(name).command.split()[0], len(client.log(name)), len(next(client.follow_log(name))))
        print(client.extend(name, by=timedelta(hours=1)).lifetime, client.heartbeat(name))
        client.wait(client.update(name, labels={"team": "speech"}))
        cursor = client.head()
        client.stop(name)
        print(next(client.events(after=cursor, ids=[instance.id])).type)
        for verb in (client.start, client.restart, client.migrate):
            open_operation = client.get(name).open_operation
            if open_operation is not None:
                client.wait(open_operation)
            client.wait(verb(name))
        print(len(client.products(name="4090")), [token.name for token in client.tokens()])
        print(client.poll(operation.id, timeout=1).status, len(client.event_page(after=cursor, first=5)[0]))
        print(client.lifetime_policy().required, client.spend(group_by="PRODUCT").total)
        client.wait(client.delete(name))

        budget = client.create_budget(name=name, limit=Decimal(50), period="MONTH", scope={"project": True})
        print([each.remaining for each in client.budgets() if each.id == budget.id])
        client.delete_budget(budget.id)
        volume = client.create_volume(name=name, region="AS-SGP-02", size_gb=10)
        while volume.status == "CREATING":
            time.sleep(0.1)
            (volume,) = [each for each in client.volumes() if each.id == volume.id]
        print(client.update_volume(volume.id, size_gb=20).size_gb, client.delete_volume(volume.id).status)

        # For the length of a block. If this program is killed, the server deletes the instance two minutes later.
        with client.instance(name=f"{name}-2", product=PRODUCT, image="nginx", ports=[{"port": 80}]) as machine:
            print(machine.address(80), machine.refresh().status)
        use_market(client)
        third = client.create(
            name=f"{name}-3", product=PRODUCT, image="nginx", on_no_capacity={"wait": {"for": timedelta(hours=1)}}
        )
        try:
            print(client.update_wait(third.operation.id, priority=80).kind)
            print(client.cancel(third.operation.id).status)
        except Refused as refused:  # too late
            print(refused.code)
            client.delete(third.instance.id)
        try:
            client.get("no such instance")
        except NotFound as missing:
            print(missing)
        try:
            client.revoke_token("no such token")
        except Refused as refused:
            print(refused.code)
    receive_webhook()


def use_market(client: Pilotlight) -> None:
    offers = client.market(product_names=[PRODUCT], available_only=True)
    history = client.offer_history(PRODUCT, region="AS-SGP-02", billing_mode="ON_DEMAND")
    print(len(offers), len(history))
    alert = client.create_alert(product_names=[PRODUCT], price_at_most=Decimal("0.01"))
    print([each.cooldown for each in client.alerts() if each.id == alert.id])
    client.delete_alert(alert.id)


def receive_webhook() -> None:
    """What a receiver does with the headers and the body of a request."""
    secret = "whsec_" + base64.b64encode(b"of the project, by rotateWebhookSecret").decode()
    body, at = '{"type": "instance.ready"}', datetime.now(timezone.utc)
    signature = Webhook(secret).sign("msg_1", at, body)
    headers = {"webhook-id": "msg_1", "webhook-timestamp": str(int(at.timestamp())), "webhook-signature": signature}
    client = Pilotlight()
    try:
        print(client.verify_webhook(secret, body, headers)["type"])
    finally:
        client.close()


if __name__ == "__main__":
    main(sys.argv[1])
