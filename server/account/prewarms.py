"""Images that the provider fetches to a region's nodes in advance."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from server.account.object_rows import Seen, record_changed
from server.account.objects import Account, Creation, Editor, call, create_object, delete_object, require_owner
from server.account.registry_auths import auth_problems
from server.auth.caller import Caller
from server.db.text import is_storable
from server.enums import ProviderObjectKind
from server.errors import Invalid, NotFound, Problem, ProviderNotFound
from server.idempotency import IdempotentRequest
from server.instances.drafts import MAX_IMAGE
from server.novita.models import Cluster, Prewarm, PrewarmQuota, find_cluster, prewarm_name

__all__ = ["Prewarm", "PrewarmDraft", "PrewarmQuota"]

KIND = ProviderObjectKind.PREWARM
MAX_NOTE = 2047
MAX_PRODUCTS = 100
PAGE = 100
PAGES_MAX = 20
ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class PrewarmDraft:
    image: str
    region: str
    product_names: tuple[str, ...]
    registry_auth_id: str | None = None
    note: str | None = None

    def problems(self) -> Iterator[Problem]:
        if not self.image.strip() or len(self.image) > MAX_IMAGE or not is_storable(self.image):
            message = f"The image's name has 1 to {MAX_IMAGE} characters."
            yield Problem("INVALID_IMAGE", message, ("input", "image"))
        if not 1 <= len(self.product_names) <= MAX_PRODUCTS:
            message = f"Name 1 to {MAX_PRODUCTS} products."
            yield Problem("INVALID_PRODUCT_NAME", message, ("input", "productNames"))
        yield from note_problems(self.note)


def note_problems(note: str | None) -> Iterator[Problem]:
    if note is not None and (len(note) > MAX_NOTE or not is_storable(note)):
        yield Problem("INVALID_NOTE", f"A note has at most {MAX_NOTE} characters.", ("input", "note"))


async def prewarm_image(
    account: Account, draft: PrewarmDraft, *, key: str | None, by: Caller
) -> tuple[Prewarm | None, bool]:
    """The task, and whether an earlier request with the same key started it."""
    problems = list(draft.problems())
    cluster = find_cluster(await account.catalog.regions(), draft.region)
    if cluster is None:
        problems.append(Problem("INVALID_REGION", f"The provider has no region {draft.region}.", ("input", "region")))
    if problems or cluster is None:
        raise Invalid(problems)
    product_ids = await _check_products(account, draft, cluster)
    problems = await auth_problems(account, draft.registry_auth_id, by=by)
    if problems:
        raise Invalid(problems)
    fields = {
        "image": draft.image,
        "region": cluster.code,
        "products": sorted(draft.product_names),
        "registry_auth_id": draft.registry_auth_id,
        "note": draft.note,
    }
    request = IdempotentRequest.of(by, key, "prewarmImage", fields)
    cluster_id, name = cluster.id, prewarm_name(cluster.id, draft.image)
    creation = Creation(
        KIND,
        name,
        lambda: account.novita.prewarm(
            image=draft.image,
            cluster_id=cluster_id,
            product_ids=product_ids,
            registry_auth_id=draft.registry_auth_id,
            note=draft.note,
        ),
        lambda: ids_of(account, name),
    )
    created = await create_object(account, request, creation)
    if created.novita_id is None:
        return None, created.replayed
    return await _find(account, created.novita_id), created.replayed


async def update_prewarm(account: Account, novita_id: str, *, note: str, by: Editor) -> Prewarm | None:
    problems = list(note_problems(note))
    if problems:
        raise Invalid(problems)
    await require_owner(account, KIND, novita_id, exists=_exists, by=by)
    if account.is_dry_run:
        return None
    try:
        await call(lambda: account.novita.edit_prewarm(novita_id, note=note))
    except ProviderNotFound:
        raise NotFound("prewarm", ("input", "id")) from None
    task = await _find(account, novita_id)
    if task is not None:
        await record_changed(account.database, KIND, seen(task), by=by.caller)
    return task


async def delete_prewarm(account: Account, novita_id: str, *, by: Editor) -> None:
    await delete_object(
        account, KIND, novita_id, exists=_exists, send=lambda id: account.novita.delete_prewarms([id]), by=by
    )


async def all_prewarms(account: Account) -> Sequence[Prewarm]:
    """All tasks of the account, newest first, read now."""
    found: dict[str, Prewarm] = {}
    for number in range(1, PAGES_MAX + 1):
        page = await account.novita.prewarms(page=number, page_size=PAGE)
        before = len(found)
        found.update((task.id, task) for task in page.items)
        if len(page.items) < PAGE or len(found) == before:
            break
    return tuple(found.values())


async def prewarm_quota(account: Account) -> PrewarmQuota:
    return await account.novita.prewarm_quota()


async def all_seen(account: Account) -> list[Seen]:
    return [seen(task) for task in await all_prewarms(account)]


def seen(task: Prewarm) -> Seen:
    is_over = task.state in ENDED
    return Seen.of(task.id, task.name, task.note, is_over and task.state, is_over=is_over, state=task.state)


async def ids_of(account: Account, name: str) -> set[str]:
    """The ids of the tasks for this region and image, read now."""
    return {task.id for task in await all_prewarms(account) if task.name == name}


async def _exists(account: Account, novita_id: str) -> bool:
    return await _find(account, novita_id) is not None


async def _find(account: Account, novita_id: str) -> Prewarm | None:
    return next((task for task in await all_prewarms(account) if task.id == novita_id), None)


async def _check_products(account: Account, draft: PrewarmDraft, cluster: Cluster) -> list[str]:
    """The provider's ids of the named products in that region."""
    listing = await account.catalog.products(cluster.id, "onDemand")
    missing = set(draft.product_names) - {product.name for product in listing.value}
    if missing:
        message = f"{cluster.code} does not offer {', '.join(sorted(missing))}."
        raise Invalid([Problem("PRODUCT_NOT_FOUND", message, ("input", "productNames"))])
    return [product.id for product in listing.value if product.name in draft.product_names]
