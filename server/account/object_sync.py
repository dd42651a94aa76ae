"""Compares the objects that projects created with the provider's lists: what was changed or deleted outside."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import structlog
from sqlalchemy import or_, select

from server.account import networks, prewarms, registry_auths, templates
from server.account.object_rows import Seen, record_found, record_missing, watch_prewarms
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


@dataclass(frozen=True, slots=True)
class Compared:
    """`unfinished` are the objects whose work has not ended, among those that the provider shows."""

    changes: int = 0
    unfinished: int = 0


async def reconcile_objects(account: Account, *, gone_grace: timedelta) -> int:
    """Returns how many changes were found. Kinds without an object cost no call. Raises NovitaError."""
    compared = {kind: await compare_objects(account, kind, gone_grace=gone_grace) for kind in LISTS}
    if compared[prewarms.KIND].unfinished:
        async with account.database.write() as session:
            await watch_prewarms(session)
    return sum(each.changes for each in compared.values())


async def compare_objects(account: Account, kind: ProviderObjectKind, *, gone_grace: timedelta) -> Compared:
    """Raises NovitaError."""
    # Read before the list: a row that a caller changes meanwhile is newer than the list, and is not overwritten.
    rows = await _rows(account, kind)
    if not rows:
        return Compared()
    listed = {each.id: each for each in await LISTS[kind](account)}
    present = [row for row in rows if row.deleted_at is None]
    shown = [listed[row.novita_id] for row in present if row.novita_id in listed]
    if is_mass(len(present) - len(shown), len(present)):
        missing = len(present) - len(shown)
        log.error("provider_objects.mass_disappearance", kind=kind, missing=missing, rows=len(present))
        return Compared()
    changes = [await _apply(account, row, listed, gone_grace) for row in rows]
    return Compared(sum(changes), sum(not each.is_over for each in shown))


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
