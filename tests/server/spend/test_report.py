"""`spend`, `Instance.spend`, `Project.spend` and the subscription, from entries whose sums are known."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from schema import ids
from server.enums import InstanceStatus, Role
from server.instances import transitions
from server.spend.sums import sum_entries
from tests.support.api import Api

SPEND = """query ($filter: SpendFilter, $groupBy: SpendGroupBy! = DAY, $labelKey: String) {
    spend(filter: $filter, groupBy: $groupBy, labelKey: $labelKey) {
      total { amountMicros currency } paidTime groups { key amount { amountMicros } paidTime } } }"""
PRICE = 36_000  # 100 micros a second
NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


async def instance(api: Api, **fields: Any) -> UUID:
    row = await api.world.put(InstanceStatus.EXITED, novita_id=f"m{fields.get('name')}", **fields)
    return row.id


async def entry(api: Api, instance_id: UUID, began: datetime, hours: float | None, **fields: Any) -> None:
    """Closed after so many hours; open with None."""
    values: dict[str, Any] = {"price_e5": PRICE, "labels": "{}", "token_id": None, "region": "AS-SGP-02", **fields}
    ended = None if hours is None else began + timedelta(hours=hours)
    amount = None if hours is None else round(values["price_e5"] * 10 * hours)
    await api.world.execute(
        """INSERT INTO cost_entry (project_id, instance_id, machine, token_id, labels, price_e5, product_name, region,
                                   run_began_at, began_at, ended_at, amount_micros)
           SELECT project_id, id, novita_id, $2, $3::jsonb, $4, product_name, $5, $6, $6, $7, $8
           FROM instance WHERE id = $1""",
        instance_id,
        values["token_id"],
        values["labels"],
        values["price_e5"],
        values["region"],
        began,
        ended,
        amount,
    )


async def spent(api: Api, since: datetime, until: datetime, **arguments: Any) -> tuple[int, dict[str | None, int]]:
    given = {"since": since.isoformat(), "until": until.isoformat(), **arguments.pop("filter", {})}
    report = (await api.ask(SPEND, filter=given, **arguments)).data["spend"]
    return report["total"]["amountMicros"], {
        group["key"]: group["amount"]["amountMicros"] for group in report["groups"]
    }


@pytest.mark.parametrize("is_summed", [False, True])
async def test_amounts_by_day_whether_summed_or_not(api: Api, is_summed: bool):
    one = await instance(api, name="one")
    await entry(api, one, NOON - 13 * HOUR, 1)  # 9 March, 23:00
    await entry(api, one, NOON - 12 * HOUR, 2)  # 10 March, 00:00
    await entry(api, one, NOON, 2)
    if is_summed:
        await sum_entries(api.world.database.raw)
        assert await api.world.value("SELECT count(*) FROM cost_day") == 2

    march = NOON.replace(day=1, hour=0)
    assert await spent(api, march, march + timedelta(days=31)) == (
        5 * 360_000,
        {"2026-03-09": 360_000, "2026-03-10": 4 * 360_000},
    )
    # Parts of days are pro rata: half of the first entry, and half of the last.
    assert await spent(api, NOON - 12.5 * HOUR, NOON + HOUR) == (
        3.5 * 360_000,
        {"2026-03-09": 180_000, "2026-03-10": 3 * 360_000},
    )
    assert await spent(api, NOON + HOUR / 2, NOON + HOUR) == (180_000, {"2026-03-10": 180_000})
    assert await spent(api, NOON + 3 * HOUR, NOON + 30 * HOUR) == (0, {})


async def test_an_entry_that_is_not_cut_at_midnight_yet_is_divided_between_its_days(api: Api):
    await entry(api, await instance(api, name="one"), NOON - 14 * HOUR, 5)  # from 9 March, 22:00

    march = NOON.replace(day=1, hour=0)
    assert await spent(api, march, march + timedelta(days=31)) == (
        5 * 360_000,
        {"2026-03-09": 2 * 360_000, "2026-03-10": 3 * 360_000},
    )


async def test_groups_and_filters(api: Api):
    one, two = await instance(api, name="one"), await instance(api, name="two", product_name="H100 SXM 80GB")
    await entry(api, one, NOON, 1, labels='{"team": "a"}', token_id=api.caller.token_id)
    await entry(api, two, NOON, 2, labels='{"team": "b"}', region="US-CA-01")
    await entry(api, two, NOON + 2 * HOUR, 3)
    await sum_entries(api.world.database.raw)
    day = (NOON, NOON + 10 * HOUR)

    async def groups(by: str, **arguments: Any) -> dict[str | None, int]:
        total, found = await spent(api, *day, groupBy=by, **arguments)
        assert sum(found.values()) == total
        return {key: micros // 360_000 for key, micros in found.items()}

    ids_of = [ids.format_id(ids.INSTANCE, each) for each in (one, two)]
    assert await groups("INSTANCE") == {ids_of[0]: 1, ids_of[1]: 5}
    assert await groups("PRODUCT") == {"RTX 4090 24GB": 1, "H100 SXM 80GB": 5}
    assert await groups("REGION") == {"AS-SGP-02": 4, "US-CA-01": 2}
    assert await groups("TOKEN") == {ids.format_id(ids.TOKEN, api.caller.token_id): 1, None: 5}
    assert await groups("LABEL", labelKey="team") == {"a": 1, "b": 2, None: 3}
    assert await groups("DAY", filter={"instanceIds": [ids_of[1]]}) == {"2026-03-10": 5}
    assert await groups("DAY", filter={"labels": [{"key": "team", "value": "b"}]}) == {"2026-03-10": 2}
    assert await groups("DAY", filter={"instanceIds": ["inst_nonsense"]}) == {}


async def test_an_open_entry_costs_what_it_has_cost_so_far(api: Api):
    one = await instance(api, name="one")
    now = datetime.now(UTC)
    await entry(api, one, now - timedelta(days=2), None)

    total, days = await spent(api, now - timedelta(days=3), now)

    assert total == 48 * 360_000
    assert len(days) == 3
    later, _ = await spent(api, now - timedelta(days=3), now + HOUR)
    assert total <= later < total + 360_000


async def test_another_projects_spend_is_invisible(api: Api):
    other = await api.world.new_project("other")
    await entry(api, await instance(api, name="one", project_id=other), NOON, 1)
    assert await spent(api, NOON, NOON + HOUR) == (0, {})


@pytest.mark.parametrize(
    ("filter", "arguments"),
    [
        ({}, {"groupBy": "LABEL"}),
        ({}, {"labelKey": "team"}),
        ({"since": "2026-03-10T00:00:00Z", "until": "2026-03-09T00:00:00Z"}, {}),
        ({"labels": [{"key": "a\u0000", "value": "b"}]}, {}),
        ({"instanceIds": ["inst_1"] * 101}, {}),
    ],
)
async def test_a_wrong_filter_is_refused(api: Api, filter: dict[str, Any], arguments: dict[str, Any]):
    answer = await api.ask(SPEND, filter=filter, **arguments)
    assert answer.error["code"] == "INVALID_FILTER"


@pytest.mark.parametrize(
    "filter",
    [
        {"since": "9999-12-31T12:00:00Z", "until": "9999-12-31T13:00:00Z"},
        {"since": "0001-01-01T00:00:00+14:00", "until": "0001-01-02T00:00:00Z"},
        {"since": "0001-01-01T00:00:00+14:00", "until": "9999-12-31T23:59:59-12:00"},
    ],
)
async def test_the_first_and_the_last_times_there_are_can_be_given(api: Api, filter: dict[str, Any]):
    answer = await api.ask(
        "query ($filter: SpendFilter) { spend(filter: $filter) { total { amountMicros } } }", filter=filter
    )
    assert answer.data == {"spend": {"total": {"amountMicros": 0}}}


async def test_an_instance_shows_its_total_its_run_and_its_month(api: Api):
    one = await instance(api, name="one")
    now = datetime.now(UTC)
    await entry(api, one, now - timedelta(days=70), 1)
    await sum_entries(api.world.database.raw)
    begin_of_month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    began = max(begin_of_month, now - 2 * HOUR)
    await entry(api, one, began, (now - began) / HOUR)
    month = round((now - began).total_seconds() * 100)

    document = """query ($id: ID!) { instance(id: $id) { spend {
        total { amountMicros } thisRun { amountMicros } thisMonth { amountMicros } } } }"""
    found = (await api.ask(document, id=ids.format_id(ids.INSTANCE, one))).data["instance"]["spend"]

    assert {name: value["amountMicros"] for name, value in found.items()} == {
        "total": 360_000 + month,
        "thisRun": month,
        "thisMonth": month,
    }


async def test_a_project_shows_its_burn_and_its_forecast(api: Api):
    one = await instance(api, name="one")
    await entry(api, one, datetime.now(UTC), None)
    token, _ = await api.world.new_token(role=Role.ADMIN)
    document = """{ projects { nodes { spend { burnRate { amountMicros } spentThisMonth { amountMicros }
                    forecastMonthEnd { amountMicros } cursor } } } }"""

    (project,) = (await api.ask(document, token=token)).data["projects"]["nodes"]

    spend, now = project["spend"], datetime.now(UTC)
    assert spend["burnRate"]["amountMicros"] == 360_000
    end = (now.replace(day=1, hour=0, minute=0, second=0, microsecond=0) + timedelta(days=32)).replace(day=1)
    assert spend["forecastMonthEnd"]["amountMicros"] == pytest.approx((end - now).total_seconds() * 100, abs=3_000)
    assert spend["cursor"]


async def test_subscribers_get_the_summary_when_an_entry_begins_is_cut_and_ends(api: Api):
    row = await api.world.put(InstanceStatus.READY, novita_id="m1", novita_status="creating", price_per_hour_e5=PRICE)
    document = "subscription { spend { burnRate { amountMicros } } }"
    async with api.server.watching(document, token=api.token) as socket:
        assert (await socket.next("spend"))["burnRate"]["amountMicros"] == 0
        async with api.world.database.write() as session:
            await transitions.update(session, row.id, cause=transitions.Cause(), novita_status="running")
        assert (await socket.next("spend"))["burnRate"]["amountMicros"] == 360_000
        for changes, burn in (({"labels": {"team": "a"}}, 360_000), ({"novita_status": "exited"}, 0)):
            async with api.world.database.write() as session:
                await transitions.update(session, row.id, cause=transitions.Cause(), **changes)
            assert (await socket.next("spend"))["burnRate"]["amountMicros"] == burn
    assert await api.world.value("SELECT count(*) FROM cost_entry") == 2


BY_DAY = """query ($filter: SpendFilter, $groupBy: SpendGroupBy!, $labelKey: String, $groups: Int!) {
    spend(filter: $filter, groupBy: $groupBy, labelKey: $labelKey) {
      byDay(groups: $groups) { day key amount { amountMicros } } } }"""


async def cells(api: Api, by: str, groups: int = 8, **arguments: Any) -> list[tuple[str, str | None, int]]:
    given = {"since": (NOON - 24 * HOUR).isoformat(), "until": (NOON + 24 * HOUR).isoformat()}
    report = (await api.ask(BY_DAY, filter=given, groupBy=by, groups=groups, **arguments)).data["spend"]
    return [(cell["day"], cell["key"], cell["amount"]["amountMicros"] // 360_000) for cell in report["byDay"]]


@pytest.mark.parametrize("is_summed", [False, True])
async def test_the_largest_groups_are_shown_by_day(api: Api, is_summed: bool):
    one, two = await instance(api, name="one"), await instance(api, name="two", product_name="H100 SXM 80GB")
    await entry(api, one, NOON - 13 * HOUR, 1, labels='{"team": "a"}')  # 9 March, 23:00
    await entry(api, one, NOON, 1, labels='{"team": "a"}')
    await entry(api, two, NOON, 5)
    if is_summed:
        await sum_entries(api.world.database.raw)

    large, small = ("2026-03-10", "H100 SXM 80GB", 5), ("2026-03-10", "RTX 4090 24GB", 1)
    assert await cells(api, "PRODUCT") == [("2026-03-09", "RTX 4090 24GB", 1), large, small]
    assert await cells(api, "PRODUCT", groups=1) == [large]
    assert await cells(api, "LABEL", labelKey="team") == [
        ("2026-03-09", "a", 1),
        ("2026-03-10", None, 5),
        ("2026-03-10", "a", 1),
    ]
    keys = {key for _, key, _ in await cells(api, "INSTANCE")}
    assert keys == {ids.format_id(ids.INSTANCE, each) for each in (one, two)}


@pytest.mark.parametrize("groups", [0, 21])
async def test_a_wrong_number_of_groups_is_refused(api: Api, groups: int):
    answer = await api.ask(BY_DAY, filter={}, groupBy="PRODUCT", groups=groups)
    assert answer.error["code"] == "INVALID_FILTER"
