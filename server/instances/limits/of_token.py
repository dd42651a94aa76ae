"""The limits of the caller's token: which products and regions, and how long a run may be."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from server.auth.caller import Caller
from server.auth.token_limits import read_limits
from server.db.tables import Token
from server.instances.limits.policy import Policy
from server.spend.admission import token_of_run
from server.spend.refusals import TokenLimitExceeded


def policy_for(policy: Policy, by: Caller | None) -> Policy:
    """The project's rules, with the longest run of the caller's token."""
    longest = None if by is None else by.limits.max_duration
    if longest is None:
        return policy
    at_most = longest if policy.max_duration_at_most is None else min(longest, policy.max_duration_at_most)
    default = policy.default_max_duration or at_most
    return replace(policy, max_duration_at_most=at_most, default_max_duration=min(default, at_most), needs_end=True)


def refuse_product(by: Caller, product_name: str, path: tuple[str, ...] = ("input", "productName")) -> None:
    names = by.limits.product_names
    if names is not None and product_name.strip().casefold() not in {each.strip().casefold() for each in names}:
        raise TokenLimitExceeded("productNames", f"This token is not for the product {product_name}.", path)


def refuse_machine(by: Caller, product_name: str, region: str | None) -> None:
    """Raise TokenLimitExceeded if the token may not start such an instance."""
    refuse_product(by, product_name, ("input", "id"))
    regions = by.limits.regions
    if regions is not None and region is not None and region.casefold() not in {each.casefold() for each in regions}:
        raise other_region(region, "id")


async def regions_of_run(session: AsyncSession, instance_id: UUID) -> Sequence[str] | None:
    """The regions of the token that pays for the present run; None if it is for all of them."""
    token_id = await token_of_run(session, instance_id)
    token = None if token_id is None else await session.get(Token, token_id)
    return None if token is None else read_limits(token.limits).regions


def other_region(region: str, field: str) -> TokenLimitExceeded:
    return TokenLimitExceeded("regions", f"This token is not for the region {region}.", ("input", field))
