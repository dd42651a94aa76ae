"""The schema: Query, Mutation and Subscription."""

from functools import lru_cache

import strawberry
from strawberry.schema.config import StrawberryConfig
from strawberry.schema.name_converter import NameConverter
from strawberry.types import get_object_definition
from strawberry.types.base import StrawberryObjectDefinition
from strawberry.utils.str_converters import to_camel_case

from schema.audit import Audited
from schema.error_masking import ErrorMasking
from schema.errors import ALL_ERRORS
from schema.inputs import build_input
from schema.mutations.account import AccountMutations
from schema.mutations.alerts import AlertMutations
from schema.mutations.budgets import BudgetMutations
from schema.mutations.bulk import BulkMutations
from schema.mutations.create import InstanceMutations
from schema.mutations.fleet import FleetMutations
from schema.mutations.health import HealthMutations
from schema.mutations.images import ImageMutations
from schema.mutations.jobs import JobMutations
from schema.mutations.lifecycle import LifecycleMutations
from schema.mutations.lifetimes import LifetimeMutations
from schema.mutations.networks import NetworkMutations
from schema.mutations.operations import OperationMutations
from schema.mutations.quotas import QuotaMutations
from schema.mutations.spend import SpendMutations
from schema.mutations.tokens import TokenMutations
from schema.mutations.volumes import VolumeMutations
from schema.mutations.waits import WaitMutations
from schema.mutations.webhooks import WebhookMutations
from schema.queries.access import AccessQueries
from schema.queries.account import AccountQueries
from schema.queries.audit import AuditQueries
from schema.queries.catalog import CatalogQueries
from schema.queries.events import EventQueries
from schema.queries.fleet import FleetQueries
from schema.queries.instances import InstanceQueries
from schema.queries.jobs import JobQueries
from schema.queries.market import MarketQueries
from schema.queries.metrics import MetricsQueries
from schema.queries.node import NodeQueries
from schema.queries.operations import OperationQueries
from schema.queries.server import ServerQueries
from schema.queries.spend import SpendQueries
from schema.queries.tokens import TokenQueries
from schema.queries.volumes import VolumeQueries
from schema.queries.webhooks import WebhookQueries
from schema.scalars import SCALARS
from schema.subscriptions import Subscription


@strawberry.type(description="Queries: read the current state.")
class Query(
    NodeQueries,
    ServerQueries,
    TokenQueries,
    OperationQueries,
    CatalogQueries,
    AccountQueries,
    VolumeQueries,
    AccessQueries,
    FleetQueries,
    JobQueries,
    EventQueries,
    WebhookQueries,
    InstanceQueries,
    MetricsQueries,
    SpendQueries,
    AuditQueries,
    MarketQueries,
):
    pass


@strawberry.type(description="Mutations: each returns what was accepted, or `errors` if the request was refused.")
class Mutation(
    InstanceMutations,
    LifecycleMutations,
    LifetimeMutations,
    ImageMutations,
    BulkMutations,
    OperationMutations,
    WaitMutations,
    FleetMutations,
    JobMutations,
    WebhookMutations,
    HealthMutations,
    AccountMutations,
    NetworkMutations,
    VolumeMutations,
    BudgetMutations,
    AlertMutations,
    QuotaMutations,
    SpendMutations,
    TokenMutations,
):
    pass


# Here, so that no mutation can be without it. The last extension is the outermost.
for _field in get_object_definition(Mutation, strict=True).fields:
    _field.extensions.append(Audited())


_camel_case = lru_cache(maxsize=2000)(to_camel_case)


class _Names(NameConverter):
    """Remembers names: Strawberry asks for that of every argument in every request."""

    def apply_naming_config(self, name: str) -> str:
        return _camel_case(name)


class PilotlightSchema(ErrorMasking, strawberry.Schema):
    """Masks unexpected errors and prints sorted."""

    def as_str(self) -> str:
        """Sorted by name, so that a small change is a small diff.

        Only the printed form is sorted: sorting replaces the enums, and resolvers would get strings for members.
        """
        return strawberry.Schema.as_str(_build(is_sorted=True))


def _build(*, is_sorted: bool) -> PilotlightSchema:
    built = PilotlightSchema(
        query=Query,
        mutation=Mutation,
        subscription=Subscription,
        types=ALL_ERRORS,
        config=StrawberryConfig(scalar_map=SCALARS, sort_schema=is_sorted, name_converter=_Names()),
    )
    for each in built.schema_converter.type_map.values():
        if isinstance(each.definition, StrawberryObjectDefinition) and each.definition.is_input:
            each.definition.from_input = build_input
    return built


schema = _build(is_sorted=False)
