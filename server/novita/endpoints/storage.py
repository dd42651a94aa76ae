"""Network volumes and private networks."""

from server.novita.endpoints.pages import PAGE_SIZE, read_all_pages
from server.novita.models.base import ProviderPage, id_of, only, page_of
from server.novita.models.storage import Network, NetworkStorage
from server.novita.transport.concurrency import CallPriority
from server.novita.transport.request import ApiCalls, get, ignore_body, post


class StorageCalls(ApiCalls):
    async def network_storages(
        self,
        *,
        page: int = 1,
        page_size: int = PAGE_SIZE,
        name: str | None = None,
        storage_id: str | None = None,
        priority: CallPriority = CallPriority.USER,
    ) -> ProviderPage[NetworkStorage]:
        """One page, counted from 1; only this call names the parameter `pageNo`."""
        call = get("/networkstorages/list", pageNo=page, pageSize=page_size, storageName=name, storageId=storage_id)
        return await self._transport.call(call, page_of(NetworkStorage.read, "data"), priority=priority)

    async def all_network_storages(self, *, priority: CallPriority = CallPriority.USER) -> list[NetworkStorage]:
        """All pages, whether they begin at 0 or 1. Raises ProviderError if there are fewer than the list says it has:
        a volume must not be taken for absent because a page was missed."""

        async def read(number: int) -> ProviderPage[NetworkStorage]:
            return await self.network_storages(page=number, page_size=PAGE_SIZE, priority=priority)

        return await read_all_pages(read, of="network storages", must_be_complete=True)

    async def create_network_storage(
        self, *, cluster_id: str, name: str, size_gb: int, asked_at: float | None = None
    ) -> str:
        """Returns the new id. Not retried: it could create two, both billed. `asked_at` as of `create_instance`."""
        call = post(
            "/networkstorage/create",
            {"clusterId": cluster_id, "storageName": name, "storageSize": size_gb},
            is_repeatable=False,
            asked_at=asked_at,
        )
        return await self._transport.call(call, id_of("storageId", "id"))

    async def update_network_storage(self, storage_id: str, *, name: str, size_gb: int) -> None:
        """`size_gb` is the total size, which can only grow."""
        call = post(
            "/networkstorage/update",
            {"storageId": storage_id, "storageName": name, "storageSize": size_gb},
            is_repeatable=True,
        )
        await self._transport.call(call, ignore_body)

    async def delete_network_storage(self, storage_id: str) -> None:
        call = post("/networkstorage/delete", {"storageId": storage_id}, is_repeatable=True)
        await self._transport.call(call, ignore_body)

    async def networks(
        self,
        *,
        page: int = 1,
        page_size: int = 100,
        name: str | None = None,
    ) -> ProviderPage[Network]:
        call = get("/networks", pageNum=page, pageSize=page_size, name=name)
        # Documented as network, seen as networks.
        return await self._transport.call(call, page_of(Network.read, "networks", "network"))

    async def network(self, network_id: str) -> Network:
        return await self._transport.call(get("/network", networkId=network_id), only(Network.read, "network"))

    async def create_network(self, *, cluster_id: str, name: str) -> None:
        """The response has no id: list and match by name, which takes a few seconds to appear."""
        call = post("/network/create", {"clusterId": cluster_id, "name": name}, is_repeatable=False)
        await self._transport.call(call, ignore_body)

    async def update_network(self, network_id: str, *, name: str) -> None:
        call = post("/network/update", {"networkId": network_id, "name": name}, is_repeatable=True)
        await self._transport.call(call, ignore_body)

    async def delete_network(self, network_id: str) -> None:
        call = post("/network/delete", {"networkId": network_id}, is_repeatable=True)
        await self._transport.call(call, ignore_body)
