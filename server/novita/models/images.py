"""Images that the provider fetches to the nodes of a region in advance."""

from datetime import datetime

from server.novita.models.base import model
from server.novita.transport.json_reader import JsonReader


@model
class PrewarmQuota:
    used: int | None
    limit: int | None
    gb_per_image: int | None

    @classmethod
    def read(cls, raw: JsonReader) -> "PrewarmQuota":
        return cls(used=raw.integer("total"), limit=raw.integer("limit"), gb_per_image=raw.integer("perImageSize"))


@model
class Prewarm:
    """An image being fetched to a region's nodes; `state` is capitalised, unlike other states."""

    id: str
    image: str
    cluster_id: str | None
    product_ids: tuple[str, ...]
    state: str
    note: str | None
    created_at: datetime | None

    @property
    def name(self) -> str:
        """Tasks have no name: they are told apart by region and image."""
        return prewarm_name(self.cluster_id or "", self.image)

    @classmethod
    def read(cls, raw: JsonReader) -> "Prewarm":
        return cls(
            id=raw.required_id("id", "Id"),
            image=raw.text("imageUrl"),
            cluster_id=raw.optional_text("clusterId"),
            product_ids=raw.texts("productIds") or tuple(each.text("productId") for each in raw.objects("products")),
            state=raw.text("state"),
            note=raw.optional_text("note"),
            created_at=raw.time("createdAt") or raw.time("createTime"),
        )


def prewarm_name(cluster_id: str, image: str) -> str:
    return f"{cluster_id} {image}"
