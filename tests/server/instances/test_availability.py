"""What a caller reads when no region can serve the request."""

from typing import Any

import pytest

from server.enums import Billing
from server.errors import NoCapacity, Refused
from tests.support.world import MUMBAI, SINGAPORE, World


async def refusal(world: World, **fields: Any) -> Refused:
    before = await world.counts()
    with pytest.raises(Refused) as refused:
        await world.create("refused", **fields)
    assert await world.counts() == before
    return refused.value


async def test_product_of_other_regions_is_created_there_if_any_region_will_do(world: World):
    await world.configure(default_regions=())
    accepted = await world.create("any", product_name="RTX 5090 32GB")
    await world.work_once()

    assert accepted.instance.placement == "PRICE"
    assert (await world.instance(accepted.instance.id))["region"] == "US-CA-06"


async def test_the_lowest_price_of_all_regions_is_the_default(world: World):
    await world.configure(default_regions=())
    accepted = await world.create("cheapest")
    await world.work_once()

    row = await world.instance(accepted.instance.id)
    assert (row["region"], row["price_per_hour_e5"]) == (MUMBAI, 16000)


async def test_product_of_other_regions_is_refused_with_where_it_is(world: World):
    refused = await refusal(world, product_name="RTX 5090 32GB", regions=(SINGAPORE, MUMBAI))

    assert (refused.code, refused.path) == ("PRODUCT_NOT_FOUND", ("input", "regions"))
    assert refused.message == (
        "RTX 5090 32GB is not offered as spot or on demand in AS-SGP-02, AS-IN-01."
        " In stock spot: OC-AU-01, US-CA-06. In stock on demand: OC-AU-01, US-CA-06."
    )


async def test_product_without_spot_is_refused_with_the_other_mode(world: World):
    refused = await refusal(world, product_name="H100 SXM 80GB", billing=Billing.SPOT, regions=("EU-GB-01",))

    assert refused.message == (
        "H100 SXM 80GB is not offered as spot in EU-GB-01."
        " In stock spot: US-CA-06, AS-SGP-02. In stock on demand: US-CA-06, AS-SGP-02, EU-GB-01."
    )


async def test_product_out_of_stock_is_not_called_unknown(world: World):
    refused = await refusal(world, product_name="H200 SXM 141GB", regions=("ANY",))

    assert isinstance(refused, NoCapacity)
    assert refused.message == "H200 SXM 141GB is out of stock in EU-GB-01."
    assert {attempt.code for attempt in refused.attempts} == {"OUT_OF_STOCK"}


async def test_eight_gpus_where_four_stand_are_refused(world: World):
    world.stock("*", 4)
    refused = await refusal(world, gpu_count=8, regions=("ANY",))

    assert isinstance(refused, NoCapacity)
    assert refused.message.startswith("RTX 4090 24GB with 8 GPUs is out of stock in ")


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("RTX 5090", " Did you mean RTX 5090 32GB or "),
        ("rtx 4090 24gb", " Did you mean RTX 4090 24GB or "),
        ("H200", " Did you mean H200 SXM 141GB?"),
        ("Cray-1", ""),
    ],
)
async def test_unknown_product_is_refused_with_similar_names(world: World, name: str, suggestion: str):
    refused = await refusal(world, product_name=name, regions=("ANY",))

    assert (refused.code, refused.path) == ("PRODUCT_NOT_FOUND", ("input", "productName"))
    assert refused.message.startswith(f"No region offers {name}.{suggestion}")
    assert suggestion or refused.message == f"No region offers {name}."


async def test_region_comes_first_and_any_other_after_it(world: World):
    await world.configure(default_regions=())
    accepted = await world.create("first", region="cn-hongkong-1")

    assert accepted.instance.placement == "REGION_ORDER"
    assert accepted.instance.regions[:2] == ["CN-HK-01", "US-CA-06"]
    assert len(accepted.instance.regions) == 6
