"""Private networks (VPC) of the account."""

from server.account.object_rows import Seen, record_changed
from server.account.objects import Account, Creation, Editor, call, create_object, delete_object, require_owner
from server.auth.caller import Caller
from server.catalog.catalog import Network
from server.enums import ProviderObjectKind
from server.errors import Invalid, NotFound, Problem, ProviderNotFound
from server.idempotency import IdempotentRequest
from server.novita.models import find_cluster

KIND = ProviderObjectKind.NETWORK
MAX_NAME = 30


async def create_network(
    account: Account, *, name: str, region: str, key: str | None, by: Caller
) -> tuple[Network | None, bool]:
    """The new network, and whether an earlier request with the same key created it."""
    _check_name(name)
    cluster = find_cluster(await account.catalog.regions(), region)
    if cluster is None:
        raise Invalid([Problem("INVALID_REGION", f"The provider has no region {region}.", ("input", "region"))])
    if not cluster.supports_networks:
        message = f"{cluster.code} has no private networks."
        raise Invalid([Problem("NETWORKS_NOT_SUPPORTED", message, ("input", "region"))])
    request = IdempotentRequest.of(by, key, "createNetwork", {"name": name, "region": cluster.code})
    cluster_id = cluster.id

    async def send() -> None:
        await account.novita.create_network(cluster_id=cluster_id, name=name)

    created = await create_object(account, request, Creation(KIND, name, send, lambda: ids_of(account, name)))
    if created.novita_id is None:
        return None, created.replayed
    return await account.catalog.network(created.novita_id), created.replayed


async def update_network(account: Account, novita_id: str, *, name: str, by: Editor) -> Network | None:
    _check_name(name)
    await require_owner(account, KIND, novita_id, exists=_exists, by=by)
    if account.is_dry_run:
        return None
    try:
        await call(lambda: account.novita.update_network(novita_id, name=name))
    except ProviderNotFound:
        raise NotFound("network", ("input", "id")) from None
    await account.catalog.networks(fresh=True)
    network = await account.catalog.network(novita_id)
    if network is not None:
        await record_changed(account.database, KIND, seen(network), by=by.caller)
    return network


async def delete_network(account: Account, novita_id: str, *, by: Editor) -> None:
    """Refused by the provider while instances are in it."""
    await delete_object(account, KIND, novita_id, exists=_exists, send=account.novita.delete_network, by=by)
    await account.catalog.networks(fresh=True)


async def all_seen(account: Account) -> list[Seen]:
    return [seen(network) for network in await account.catalog.networks(fresh=True)]


def seen(network: Network) -> Seen:
    return Seen.of(network.id, network.name, network.state, network.error, state=network.state)


async def ids_of(account: Account, name: str) -> set[str]:
    """The ids that the provider has under this name now."""
    return {network.id for network in await account.catalog.networks(fresh=True) if network.name == name}


async def _exists(account: Account, novita_id: str) -> bool:
    return await account.catalog.network(novita_id) is not None


def _check_name(name: str) -> None:
    if not name.strip() or len(name) > MAX_NAME or not name.isprintable():
        message = f"A network's name has 1 to {MAX_NAME} printable characters."
        raise Invalid([Problem("INVALID_NETWORK_NAME", message, ("input", "name"))])
