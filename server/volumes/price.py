"""What a network volume costs."""


def price_per_hour_e5(price_e5: int | None, size_gb: int) -> int | None:
    """The provider shows a price without a unit. It is taken as 1/100000 USD per GB and hour, the unit of its other
    prices: with that, 100 GB at "7" cost about 5 USD a month, as volumes elsewhere do."""
    return None if price_e5 is None else price_e5 * size_gb
