"""Images that the provider fetches to the nodes of a region in advance."""

from collections.abc import Sequence

from server.novita.models.base import ProviderPage, id_of, page_of
from server.novita.models.images import Prewarm, PrewarmQuota
from server.novita.transport.request import ApiCalls, get, ignore_body, post


class ImageCalls(ApiCalls):
    async def prewarm_quota(self) -> PrewarmQuota:
        return await self._transport.call(get("/image/prewarm/quota"), PrewarmQuota.read)

    async def prewarms(
        self,
        *,
        page: int = 1,
        page_size: int = 100,
        state: str | None = None,
        cluster_id: str | None = None,
        name: str | None = None,
    ) -> ProviderPage[Prewarm]:
        """One page, counted from 1; only this call names the parameter `page`."""
        call = get("/image/prewarm", page=page, pageSize=page_size, state=state, clusterId=cluster_id, name=name)
        return await self._transport.call(call, page_of(Prewarm.read, "data"))

    async def prewarm(
        self,
        *,
        image: str,
        cluster_id: str,
        product_ids: Sequence[str],
        registry_auth_id: str | None = None,
        note: str | None = None,
    ) -> str:
        """Fetch an image to a region's nodes; returns the task's id. Not retried: there is a quota."""
        body = {
            "imageUrl": image,
            "clusterId": cluster_id,
            "productIds": list(product_ids),
            "repositoryAuth": registry_auth_id,
            "note": note,
        }
        call = post(
            "/image/prewarm", {name: value for name, value in body.items() if value is not None}, is_repeatable=False
        )
        return await self._transport.call(call, id_of("id"))

    async def edit_prewarm(self, prewarm_id: str, *, note: str) -> None:
        call = post("/image/prewarm/edit", {"id": prewarm_id, "note": note}, is_repeatable=True)
        await self._transport.call(call, ignore_body)

    async def delete_prewarms(self, prewarm_ids: Sequence[str]) -> None:
        call = post("/image/prewarm/delete", {"ids": list(prewarm_ids)}, is_repeatable=True)
        await self._transport.call(call, ignore_body)
