"""Settles creates without a response that no caller repeated, and forgets what was deleted long ago."""

from collections.abc import Awaitable, Callable, Collection
from datetime import timedelta

from server.account import networks, prewarms, registry_auths, templates
from server.account.objects import Account, settle_unconfirmed
from server.db.pool import RawPool
from server.enums import ProviderObjectKind

IDS_OF: dict[ProviderObjectKind, Callable[[Account, str], Awaitable[Collection[str]]]] = {
    registry_auths.KIND: registry_auths.ids_of,
    templates.KIND: templates.ids_of,
    networks.KIND: networks.ids_of,
    prewarms.KIND: prewarms.ids_of,
}
PRUNE = """
    DELETE FROM provider_object WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM provider_object WHERE deleted_at < clock_timestamp() - $1::interval LIMIT $2
    ))
"""


async def settle_objects(account: Account) -> int:
    """Returns how many were settled. Raises NovitaError; makes no call if there is nothing to settle."""
    return await settle_unconfirmed(account, lambda kind, name: IDS_OF[kind](account, name))


async def prune_objects(pool: RawPool, *, older_than: timedelta, limit: int) -> int:
    """Forget objects that were deleted before that; returns how many."""
    return int((await pool.execute(PRUNE, older_than, limit)).rsplit(" ", 1)[1])
