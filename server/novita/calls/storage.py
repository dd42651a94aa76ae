"""Network volumes and private networks."""

from server.novita.call import get, post
from server.novita.calls.base import Calls, nothing
from server.novita.fields import Fields, Unreadable
from server.novita.priority import Priority
from server.novita.wire.page import Page
from server.novita.wire.storage import Network, NetworkStorage


class StorageCalls(Calls):
    async def network_storages(
        self,
        *,
        page: int = 1,
        page_size: int = 100,
        name: str | None = None,
        storage_id: str | None = None,
        priority: Priority = Priority.USER,
    ) -> Page[NetworkStorage]:
        """One page, counted from 1; this call alone names the page pageNo."""
        call = get("/networkstorages/list", pageNo=page, pageSize=page_size, storageName=name, storageId=storage_id)
        return await self._caller.call(call, _storages, priority=priority)

    async def create_network_storage(
        self, *, cluster_id: str, name: str, size_gb: int, priority: Priority = Priority.USER
    ) -> str:
        """Returns the new id. Not repeated on failure: there could be two of them, and both are billed."""
        call = post(
            "/networkstorage/create",
            {"clusterId": cluster_id, "storageName": name, "storageSize": size_gb},
            is_repeatable=False,
        )
        return await self._caller.call(call, _storage_id, priority=priority)

    async def update_network_storage(
        self, storage_id: str, *, name: str, size_gb: int, priority: Priority = Priority.USER
    ) -> None:
        """`size_gb` is the whole size, which can only grow."""
        call = post(
            "/networkstorage/update",
            {"storageId": storage_id, "storageName": name, "storageSize": size_gb},
            is_repeatable=True,
        )
        await self._caller.call(call, nothing, priority=priority)

    async def delete_network_storage(self, storage_id: str, *, priority: Priority = Priority.USER) -> None:
        call = post("/networkstorage/delete", {"storageId": storage_id}, is_repeatable=True)
        await self._caller.call(call, nothing, priority=priority)

    async def networks(
        self, *, page: int = 1, page_size: int = 100, name: str | None = None, priority: Priority = Priority.USER
    ) -> Page[Network]:
        call = get("/networks", pageNum=page, pageSize=page_size, name=name)
        return await self._caller.call(call, _networks, priority=priority)

    async def network(self, network_id: str, *, priority: Priority = Priority.USER) -> Network:
        return await self._caller.call(get("/network", networkId=network_id), _network, priority=priority)

    async def create_network(self, *, cluster_id: str, name: str, priority: Priority = Priority.USER) -> None:
        """The provider does not tell the new id: list and match by name, which takes a few seconds to appear."""
        call = post("/network/create", {"clusterId": cluster_id, "name": name}, is_repeatable=False)
        await self._caller.call(call, nothing, priority=priority)

    async def update_network(self, network_id: str, *, name: str, priority: Priority = Priority.USER) -> None:
        call = post("/network/update", {"networkId": network_id, "name": name}, is_repeatable=True)
        await self._caller.call(call, nothing, priority=priority)

    async def delete_network(self, network_id: str, *, priority: Priority = Priority.USER) -> None:
        call = post("/network/delete", {"networkId": network_id}, is_repeatable=True)
        await self._caller.call(call, nothing, priority=priority)


def _storages(raw: Fields) -> Page[NetworkStorage]:
    return Page(tuple(NetworkStorage.read(item) for item in raw.listed("data")), raw.integer("total"))


def _storage_id(raw: Fields) -> str:
    return raw.identity("storageId", "id")


def _networks(raw: Fields) -> Page[Network]:
    # Seen as networks, documented as network.
    return Page(tuple(Network.read(item) for item in raw.listed("networks", "network")), raw.integer("total"))


def _network(raw: Fields) -> Network:
    found = raw.objects("network")  # an array of one, or the object
    if len(found) != 1:
        raise Unreadable("it has no network")
    return Network.read(found[0])
