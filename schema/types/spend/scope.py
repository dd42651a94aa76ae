"""What a budget or a quota is about."""

from typing import TYPE_CHECKING, Annotated

import strawberry

from schema import ids
from server.spend.scope import Scoped

if TYPE_CHECKING:
    from schema.types.instance import KeyValue


@strawberry.type(description="What a budget or a quota counts: one of its fields is set.")
class BudgetScope:
    project: bool = strawberry.field(description="Whether it is everything in the project.")
    label: Annotated["KeyValue", strawberry.lazy("schema.types.instance")] | None = strawberry.field(
        description="Instances with this label."
    )
    token_id: strawberry.ID | None = strawberry.field(description="What this token created or started.")

    @classmethod
    def of(cls, row: Scoped) -> "BudgetScope":
        from schema.types.instance_parts import KeyValue  # noqa: PLC0415 - the two modules refer to each other

        label = None if row.label_key is None else KeyValue(key=row.label_key, value=row.label_value or "")
        token_id = None if row.token_id is None else strawberry.ID(ids.format_id(ids.TOKEN, row.token_id))
        return cls(project=label is None and token_id is None, label=label, token_id=token_id)
