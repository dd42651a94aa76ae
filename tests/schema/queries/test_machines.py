"""Machines of instances in the API."""

from schema import ids
from tests.support.api import Api
from tests.support.world import HONG_KONG, SINGAPORE

MACHINES = "machines { number novitaId region productId billingMode pricePerHour { amountMicros } endReason }"


async def test_machines_are_listed_in_order_with_the_one_that_serves_last(api: Api):
    row = await api.world.put(project_id=api.caller.project_id, novita_id="new", region=HONG_KONG)
    other = await api.world.put(project_id=api.caller.project_id)
    add = """
        INSERT INTO machine (instance_id, number, novita_id, region, product_id, billing_mode, price_e5, began_at,
                             serving_from, ended_at, end_reason)
        VALUES ($1, 2, 'new', 'CN-HK-01', 'p2', 'onDemand', 35000, now(), now(), NULL, NULL),
               ($1, 1, 'old', 'AS-SGP-02', 'p1', 'spot', 17500, now(), now(), now(), 'REPLACED')
    """
    await api.world.execute(add, row.id)
    document = f"query ($ids: [ID!]) {{ instances(filter: {{ids: $ids}}) {{ nodes {{ name {MACHINES} }} }} }}"
    given = [ids.format_id(ids.INSTANCE, each.id) for each in (row, other)]

    nodes = (await api.ask(document, ids=given)).data["instances"]["nodes"]

    assert {each["name"]: each["machines"] for each in nodes} == {
        other.name: [],
        row.name: [
            {
                "number": 1,
                "novitaId": "old",
                "region": SINGAPORE,
                "productId": "p1",
                "billingMode": "SPOT",
                "pricePerHour": {"amountMicros": 175_000},
                "endReason": "REPLACED",
            },
            {
                "number": 2,
                "novitaId": "new",
                "region": HONG_KONG,
                "productId": "p2",
                "billingMode": "ON_DEMAND",
                "pricePerHour": {"amountMicros": 350_000},
                "endReason": None,
            },
        ],
    }
