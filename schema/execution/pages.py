"""A page of instances of which everything is made when it is asked for: edges, cursors, where it stands."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from schema.execution.light import LightInstance
from schema.execution.selections import STAND_INS, Shared
from schema.filters import InstanceOrderBy
from schema.paging import order_cursor
from schema.types.connection import InstanceConnection, InstanceEdge
from schema.types.instance import Instance
from schema.types.page import PageInfo
from server.db import tables
from server.instances import light, reads


class LightEdge(InstanceEdge):
    """Stands for an `InstanceEdge`; most pages ask for no cursor but the last."""

    def __init__(self, node: Instance, row: tables.Instance, order: InstanceOrderBy) -> None:
        self.node = node
        self._row = row
        self._order = order

    @property
    def cursor(self) -> str:  # type: ignore[override]
        return order_cursor(self._order.name, reads.place_of(self._row, self._order.field), self._row.id)


class LightConnection(InstanceConnection):
    """Stands for an `InstanceConnection` of the first `size` rows; one more row tells that there is more."""

    def __init__(
        self,
        rows: Sequence[tables.Instance],
        size: int,
        *,
        wanted: reads.InstanceFilter,
        order: InstanceOrderBy,
        after: str | None,
    ) -> None:
        self.wanted = wanted
        self._rows = rows[:size]
        # By how many are shown: the row that only tells that there is more is one more to somebody else.
        shown = rows.shown if isinstance(rows, light.Page) else {}
        self._shown: dict[object, Any] = shown.setdefault(len(self._rows), {})
        self._has_more = len(rows) > size
        self._order = order
        self._after = after

    @cached_property
    def nodes(self) -> list[Instance]:  # type: ignore[override]
        return Shared([LightInstance(row) for row in self._rows], self._shown)

    @cached_property
    def edges(self) -> list[InstanceEdge]:  # type: ignore[override]
        return [LightEdge(node, row, self._order) for node, row in zip(self.nodes, self._rows, strict=True)]

    @cached_property
    def page_info(self) -> PageInfo:  # type: ignore[override]
        return PageInfo.of(self.edges, has_more=self._has_more, after=self._after)


STAND_INS[InstanceEdge] = (LightEdge,)
STAND_INS[InstanceConnection] = (LightConnection,)
