"""Query, Mutation, Subscription in one schema; nothing else."""

import strawberry
from strawberry.schema.config import StrawberryConfig

from schema.errors import ALL_ERRORS
from schema.faults import Faults
from schema.mutations.bulk import BulkMutations
from schema.mutations.fleet import FleetMutations
from schema.mutations.instances import InstanceMutations
from schema.mutations.jobs import JobMutations
from schema.mutations.lifecycle import LifecycleMutations
from schema.mutations.operations import OperationMutations
from schema.mutations.tokens import TokenMutations
from schema.mutations.webhooks import WebhookMutations
from schema.queries import Query
from schema.scalars import SCALARS
from schema.subscriptions import Subscription


@strawberry.type(description="What callers can ask for. Each answers with what was accepted, or why it was refused.")
class Mutation(
    InstanceMutations,
    LifecycleMutations,
    BulkMutations,
    OperationMutations,
    FleetMutations,
    JobMutations,
    WebhookMutations,
    TokenMutations,
):
    pass


class PilotlightSchema(Faults, strawberry.Schema):
    """Ours, with errors that never leak."""

    def as_str(self) -> str:
        """In the order of the alphabet, so that a small change is a small difference.

        Only the printed form: sorting makes new types out of enums, and resolvers would get words for members.
        """
        return strawberry.Schema.as_str(_made(is_sorted=True))


def _made(*, is_sorted: bool) -> PilotlightSchema:
    return PilotlightSchema(
        query=Query,
        mutation=Mutation,
        subscription=Subscription,
        types=ALL_ERRORS,
        config=StrawberryConfig(scalar_map=SCALARS, sort_schema=is_sorted),
    )


schema = _made(is_sorted=False)
