"""Quotes that hold: what a quoted create takes, and when it is refused instead."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from server.clock import now
from server.db.seals import Seals
from server.enums import Role
from server.instances.binding_quote import BindingQuote
from server.instances.commands import create
from tests.support.api import Api
from tests.support.api_server import serving

QUOTE = """query ($input: QuoteInput!) { quote(input: $input) {
    quoteId expiresAt maxCost { amountMicros } best { region billingMode pricePerHour { amountMicros } }
    errors { code } } }"""
DRIFT = """mutation ($input: CreateInstanceInput!) { createInstance(input: $input) { instance { id }
    errors { code path ... on PriceDrifted { quoted { amountMicros } priceNow { amountMicros } } } } }"""
WISH: dict[str, Any] = {"productName": "RTX 4090 24GB", "lifetime": {"maxDuration": 1800}}


async def quote(api: Api, **fields: Any) -> dict[str, Any]:
    return (await api.ask(QUOTE, input={**WISH, **fields})).data["quote"]


async def changed(api: Api, id: str, **fields: Any) -> str:
    """The same quote with other contents, signed with the key that every process reads from the database."""
    seals = Seals(api.world.database)
    await seals.load()
    read = BindingQuote.read(id, seals.quote_key)
    assert read is not None
    return replace(read, **fields).sign(seals.quote_key)


async def codes(api: Api, **fields: Any) -> list[str]:
    return [error["code"] for error in (await api.create(**{**WISH, **fields}))["errors"]]


async def test_a_quoted_create_is_for_the_quoted_region_billing_mode_and_price(api: Api):
    quoted = await quote(api)
    best, price = quoted["best"], quoted["best"]["pricePerHour"]["amountMicros"]
    assert quoted["errors"] == []
    assert quoted["maxCost"] == {"amountMicros": round(price / 2)}
    valid_for = datetime.fromisoformat(quoted["expiresAt"]) - now()
    assert timedelta(minutes=4) < valid_for <= timedelta(minutes=5)

    assert await codes(api, quoteId=quoted["quoteId"]) == []

    row = await api.world.one("SELECT regions, billing, max_hourly_price_e5 FROM instance")
    assert tuple(row) == (f'["{best["region"]}"]', best["billingMode"], price // 10)


async def test_a_quote_without_a_hard_end_has_no_highest_cost(api: Api):
    quoted = (await api.ask(QUOTE, input={"productName": "RTX 4090 24GB"})).data["quote"]
    assert (quoted["maxCost"], quoted["quoteId"] is None) == (None, False)


async def test_a_quote_of_another_request_project_or_maker_is_refused_and_nothing_written(api: Api):
    id = (await quote(api))["quoteId"]
    stranger = replace(api, token=(await api.world.new_token("other", Role.OPERATOR))[0])
    before = await api.world.counts()
    for fields in ({"gpuCount": 2}, {"lifetime": {"maxDuration": 3600}}, {"billing": "SPOT"}, {"region": "US-CA-06"}):
        assert await codes(api, quoteId=id, **fields) == ["QUOTE_MISMATCH"]
    for wrong in ("", "qte_", "qte_AAAA", id[:-2], id[:8] + ("A" if id[8] != "A" else "B") + id[9:], "é"):
        assert await codes(api, quoteId=wrong) == ["QUOTE_MISMATCH"]
    assert await codes(stranger, quoteId=id) == ["QUOTE_MISMATCH"]
    assert await codes(api, quoteId=await changed(api, id, product_id="gone")) == ["QUOTE_MISMATCH"]
    assert await api.world.counts() == before
    assert await codes(api, quoteId=id, name="other", image="redis", labels=[{"key": "a", "value": "b"}]) == []


async def test_an_expired_quote_is_refused_and_nothing_written(api: Api):
    id = await changed(api, (await quote(api))["quoteId"], expires_at=now() - timedelta(seconds=1))
    assert await codes(api, quoteId=id, idempotencyKey="k") == ["QUOTE_EXPIRED"]
    assert await api.world.value("SELECT count(*) FROM instance") == 0


async def test_a_quoted_create_is_replayed_after_the_quote_has_expired(api: Api, monkeypatch: pytest.MonkeyPatch):
    quoted = {"quoteId": (await quote(api))["quoteId"], "idempotencyKey": "once"}
    first = await api.create(**WISH, **quoted)
    assert first["errors"] == []

    monkeypatch.setattr(create, "now", lambda: now() + timedelta(minutes=10))
    again = await api.create(**WISH, **quoted)

    assert (again["errors"], again["replayed"]) == ([], True)
    assert again["instance"]["id"] == first["instance"]["id"]
    assert await codes(api, name="other", quoteId=quoted["quoteId"]) == ["QUOTE_EXPIRED"]
    assert await api.world.value("SELECT count(*) FROM instance") == 1


async def test_a_quote_of_one_api_process_holds_in_another(api: Api):
    id = (await quote(api))["quoteId"]
    async with serving(api.server.runtime.database_url, api.server.simulator) as second:
        assert await codes(replace(api, server=second), quoteId=id) == []
    assert await api.world.value("SELECT count(*) FROM instance") == 1


async def test_a_price_above_the_quoted_one_is_refused_unless_the_drift_allows_it(api: Api):
    quoted = await quote(api)
    price = quoted["best"]["pricePerHour"]["amountMicros"] // 10
    id = await changed(api, quoted["quoteId"], price_e5=price * 9 // 10)

    wish = {**WISH, "name": "web", "image": "nginx", "quoteId": id}
    (error,) = (await api.ask(DRIFT, input={**wish, "maxPriceDrift": 0.05})).data["createInstance"]["errors"]
    assert error == {
        "code": "PRICE_DRIFTED",
        "path": ["input", "quoteId"],
        "quoted": {"amountMicros": price * 9 // 10 * 10},
        "priceNow": {"amountMicros": price * 10},
    }
    assert await api.world.value("SELECT count(*) FROM instance") == 0
    assert (await api.ask(DRIFT, input={**wish, "maxPriceDrift": 0.2})).data["createInstance"]["errors"] == []
    assert await api.world.value("SELECT max_hourly_price_e5 FROM instance") == int(price * 9 // 10 * 1.2)


@pytest.mark.parametrize("drift", [-0.1, 1.1])
async def test_a_drift_out_of_range_is_refused(api: Api, drift: float):
    assert await codes(api, maxPriceDrift=drift) == ["INVALID_MAX_PRICE_DRIFT"]


async def test_whatever_a_create_takes_can_be_quoted(api: Api):
    document = "query ($name: String!) { __type(name: $name) { inputFields { name type { kind name } } } }"
    create_input, quote_input = [
        {each["name"] for each in (await api.ask(document, name=name)).data["__type"]["inputFields"]}
        for name in ("CreateInstanceInput", "QuoteInput")
    ]
    assert create_input - quote_input == {"quoteId", "maxPriceDrift"}
    assert quote_input <= create_input
