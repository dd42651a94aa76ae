"""A request keeps its fingerprint across releases: new fields change it only when they are given."""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, ClassVar
from uuid import UUID

import pytest

from server.auth.caller import Caller
from server.enums import Billing, InstanceKind, LifetimeAction, Role, ToolName
from server.idempotency import IdempotentRequest, requested_fields
from server.instances.commands.create import request_of
from server.instances.commands.update import Receiver, UpdateDraft
from server.instances.drafts import CreateDraft, Port, StartDraft
from server.instances.limits.spec import Lifetime
from server.instances.tools import Tool
from server.probes.plan import HealthCheckDraft
from server.volumes.draft import VolumeMount
from tests.support.world import World

BY = Caller(project_id=UUID(int=1), token_id=UUID(int=2), role=Role.OPERATOR)
PLAIN = CreateDraft(name="one", product_name="RTX 4090 24GB", image="nginx", idempotency_key="k")
FULL = CreateDraft(
    name="two",
    product_name="RTX 4090 24GB",
    template_id="107672",
    gpu_count=2,
    rootfs_size_gb=80,
    region="AS-SGP-02",
    regions=("CN-HK-01", "AS-IN-01"),
    billing=Billing.SPOT,
    max_hourly_price_e5=50000,
    env={"A": "1"},
    ports=(Port(80, "http"),),
    command="run",
    labels={"team": "x"},
    health_check=HealthCheckDraft(path="/ok", expected_statuses=(200, 204), target_port=80),
    webhook_url="https://example.test/hook",
    idempotency_key="k",
)
RENAME = UpdateDraft(name="x", idempotency_key="k")
CHANGE = UpdateDraft(
    labels={"a": "b"},
    ports=(Port(80, "http"),),
    webhook=Receiver("https://example.test/hook"),
    expected_version=3,
    idempotency_key="k",
)
START = StartDraft(health_check=HealthCheckDraft(path="/ok"), target_port=8080)


def verb(mutation: str, draft: Any, **fields: Any) -> bytes:
    given = {**fields, **requested_fields(draft)}
    return IdempotentRequest.of(BY, "k", mutation, given).fingerprint


# What the first release stored for these requests, and what its processes compare with.
@pytest.mark.parametrize(
    ("fingerprint", "stored"),
    [
        (
            request_of(PLAIN, BY).fingerprint,
            "0731162818d0ff0123bf4a4263a5e4fbf4f4ea71840a2325b1241c1fbd73c9ba",
        ),
        (
            request_of(FULL, BY).fingerprint,
            "7ea879a6d74a9a9d33be0c58fba5b630546531af3292b4a4f292ece6ebf5b87d",
        ),
        (
            verb("updateInstance", replace(RENAME, idempotency_key=None), id=UUID(int=5)),
            "095c989cb92a0e2beaa9f34ed7a63729a4ea577bb8340a125c0db7a5e1e5f018",
        ),
        (
            verb("updateInstance", replace(CHANGE, idempotency_key=None), id=UUID(int=5)),
            "7db0d7b4779f1bb0109ffecca9153dea1a7eb3735523fbb98a936487356cc1a0",
        ),
        (
            verb("startInstance", START, id=UUID(int=5), name=None),
            "87097a5224523648fa276dafaca775e7933b1d5585d837ba6954482351560c12",
        ),
    ],
    ids=["create", "full create", "rename", "update", "start"],
)
def test_fingerprints_are_those_of_the_first_release(fingerprint: bytes, stored: str):
    assert fingerprint.hex() == stored


async def test_create_with_a_key_of_the_first_release_finds_its_instance(world: World):
    draft = {"image": "nginx", "ports": None, "idempotency_key": "k"}
    accepted = await world.create("one", **draft)
    stored = bytes.fromhex("0731162818d0ff0123bf4a4263a5e4fbf4f4ea71840a2325b1241c1fbd73c9ba")
    assert await world.value("SELECT fingerprint FROM idempotency_key") == stored

    again = await world.create("one", **draft)

    assert (again.replayed, again.instance.id) == (True, accepted.instance.id)
    assert await world.value("SELECT count(*) FROM instance") == 1


@pytest.mark.parametrize(
    "given",
    [
        {"kind": InstanceKind.CPU},
        {"entrypoint": "run"},
        {"tools": (Tool.of(ToolName.SSH),)},
        {"min_cuda_version": "12.4"},
        {"network_id": "n"},
        {"volumes": (VolumeMount(UUID(int=7), "/data"),)},
        {"lifetime": Lifetime(heartbeat=timedelta(hours=1))},
        {"lifetime": Lifetime(heartbeat=timedelta(hours=1), on_end=LifetimeAction.DELETE)},
    ],
)
def test_a_later_field_is_part_of_the_fingerprint_when_it_is_given(given: dict[str, Any]):
    fingerprint = request_of(replace(PLAIN, **given), BY).fingerprint
    assert fingerprint != request_of(PLAIN, BY).fingerprint
    assert fingerprint == request_of(replace(PLAIN, **given), BY).fingerprint


@dataclass(frozen=True)
class NewerHealthCheck(HealthCheckDraft):
    jitter: float | None = None


@dataclass(frozen=True)
class NewerDraft(CreateDraft):
    """As a later release may have it: one more field, also in a nested draft."""

    FIRST_FIELDS: ClassVar = CreateDraft.FIRST_FIELDS
    priority: int = 0


def test_a_new_field_changes_the_fingerprint_only_when_it_is_given():
    fields = {name: getattr(PLAIN, name) for name in ("name", "product_name", "image", "idempotency_key")}
    stored = request_of(PLAIN, BY).fingerprint

    assert request_of(NewerDraft(**fields), BY).fingerprint == stored
    assert request_of(NewerDraft(**fields, health_check=NewerHealthCheck()), BY).fingerprint == stored
    assert request_of(NewerDraft(**fields, priority=1), BY).fingerprint != stored
    assert request_of(NewerDraft(**fields, health_check=NewerHealthCheck(jitter=1)), BY).fingerprint != stored
