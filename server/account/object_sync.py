"""Compares the objects that projects created with the provider's lists: what was changed or deleted outside."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta

import structlog
from sqlalchemy import or_, select

from server.account import networks, prewarms, registry_auths, templates
from server.account.object_rows import Seen, record_found, record_missing
from server.account.objects import Account
from server.db.tables import ProviderObject
from server.enums import ProviderObjectKind
from server.instances.provider.absence import GONE_AT_PROVIDER, is_mass
from server.instances.provider.drift import SEEN_AGAIN

log = structlog.get_logger(__name__)

LISTS: dict[ProviderObjectKind, Callable[[Account], Awaitable[Sequence[Seen]]]] = {
    registry_auths.KIND: registry_auths.all_seen,
    templates.KIND: templates.all_seen,
    networks.KIND: networks.all_seen,
    prewarms.KIND: prewarms.all_seen,
}


async def reconcile_objects(account: Account, *, gone_grace: timedelta) -> int:
    """Returns how many changes were found. Kinds without an object cost no call. Raises NovitaError."""
    changes = 0
    for kind, read in LISTS.items():
        # Read before the list: a row that a caller changes meanwhile is newer than the list, and is not overwritten.
        rows = await _rows(account, kind)
        if not rows:
            continue
        listed = {each.id: each for each in await read(account)}
        present = [row for row in rows if row.deleted_at is None]
        missing = sum(row.novita_id not in listed for row in present)
        if is_mass(missing, len(present)):
            log.error("provider_objects.mass_disappearance", kind=kind, missing=missing, rows=len(present))
            continue
        for row in rows:
            changes += await _apply(account, row, listed, gone_grace)
    return changes


async def _rows(account: Account, kind: ProviderObjectKind) -> Sequence[ProviderObject]:
    """Those that exist, and those that were found to be gone: they may be seen again."""
    async with account.database.read() as session:
        found = await session.execute(
            select(ProviderObject).where(
                ProviderObject.kind == kind,
                ProviderObject.novita_id.is_not(None),
                or_(ProviderObject.deleted_at.is_(None), ProviderObject.missing_since.is_not(None)),
            )
        )
        return found.scalars().all()


async def _apply(account: Account, row: ProviderObject, listed: Mapping[str, Seen], gone_grace: timedelta) -> bool:
    """Whether there was a change."""
    seen = listed.get(row.novita_id or "")
    if seen is None:
        return await record_missing(account.database, row, gone_grace=gone_grace, reason=GONE_AT_PROVIDER)
    if row.deleted_at is not None:
        return await record_found(account.database, row, seen, is_news=True, reason=SEEN_AGAIN)
    if (row.seen, row.missing_since) == (seen.digest, None):
        return False
    is_news = row.seen != seen.digest and (row.seen is not None or seen.is_over)
    return await record_found(account.database, row, seen, is_news=is_news) and is_news
