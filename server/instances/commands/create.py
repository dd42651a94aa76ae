"""Accepts a create: every check and lookup first, then all rows in one transaction."""

from collections.abc import Collection, Sequence, Set
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any

import asyncpg

from server.auth.caller import Caller
from server.catalog.catalog import Catalog, Template
from server.clock import new_id, now
from server.enums import InstanceKind, ProviderObjectKind
from server.errors import BudgetExceeded, Invalid, NoCapacity, Problem, Refused
from server.idempotency import IdempotentRequest, requested_fields
from server.instances.availability import refuse
from server.instances.binding_quote import drift_problems, held_quote
from server.instances.commands.create_conflicts import NONE, Conflicts, Question
from server.instances.commands.create_rows import Conflict, CreateBatcher
from server.instances.drafts import MAX_ENV_OF_CPU, CreateDraft, Port, ready_timeout_fields, target_problems
from server.instances.env import sealed, secret_names
from server.instances.idempotency import Accepted, find_accepted
from server.instances.limits.of_token import policy_for
from server.instances.limits.policy import PATH
from server.instances.limits.spec import refuse_near_deadline, seconds_to_end
from server.instances.placement import Candidate
from server.instances.quote import Defaults, limited_draft, quote_draft
from server.instances.recovery.spec import volume_problems
from server.instances.tools import Tool, tool_problems
from server.market import waits
from server.market.refusals import QueuedBehind
from server.market.wait_draft import USUAL_PRIORITY
from server.spend.admission import Want
from server.spend.refusals import QuotaExceeded
from server.volumes import attach

__all__ = ["NAME_INDEX", "Accepted", "Defaults", "create_instance", "name_taken"]

NAME_INDEX = "instance_name_is_unique_among_the_living"


async def create_instance(
    creates: CreateBatcher, catalog: Catalog, draft: CreateDraft, *, by: Caller, defaults: Defaults
) -> Accepted:
    """Accept a request for an instance; a worker creates it. Every check comes first, so a refusal writes nothing."""
    draft.check(defaults.private_addresses)
    if problems := list(drift_problems(draft)):
        raise Invalid(problems)
    request = request_of(draft, by)
    question = Question.of(by.project_id, draft.name, draft.idempotency_key, objects_of(draft))
    if creates.lookup.expects_none(by.project_id) and _needs_no_call(catalog, draft):
        # Saves the query. Whatever may be wrong is then looked for in the usual order.
        with suppress(Refused, Conflict):
            return await _accept(creates, catalog, draft, request, NONE, unasked=question, by=by, defaults=defaults)
    conflicts = await creates.lookup.find(question)
    if conflicts.is_key_used or conflicts.is_name_taken:
        # Before any call of the provider. Two callers at once are caught by the unique indexes below. The name may be
        # taken by an earlier request with this same key, so the key is looked up first.
        previous = await find_accepted(creates.database, request)
        if previous is not None:
            return previous
        if conflicts.is_name_taken:
            raise name_taken()
    refuse_foreign(draft, conflicts.foreign)
    try:
        return await _accept(creates, catalog, draft, request, conflicts, unasked=None, by=by, defaults=defaults)
    except (Conflict, BudgetExceeded, QuotaExceeded) as refusal:
        # Another request with this key or this name was committed first.
        previous = await find_accepted(creates.database, request)
        if previous is not None:
            return previous
        if isinstance(refusal, Conflict):
            raise name_taken() from None
        raise


async def _accept(
    creates: CreateBatcher,
    catalog: Catalog,
    draft: CreateDraft,
    request: IdempotentRequest,
    conflicts: Conflicts,
    *,
    unasked: Question | None,
    by: Caller,
    defaults: Defaults,
) -> Accepted:
    """Raises Conflict if the name or the key is taken, or one of the `unasked` conflicts is there."""
    moment = now()
    refuse_near_deadline(draft.lifetime, PATH, at=moment)
    held = held_quote(draft, defaults.quote_key, project_id=by.project_id, at=moment)
    if held is not None:
        draft = held.bound(draft)
    draft = await limited_draft(catalog, draft, defaults.regions, by=by)
    limits = policy_for(conflicts.policy, by).applied(
        draft.lifetime, at=moment, server_default=defaults.max_duration, has_gpu=draft.kind is InstanceKind.GPU
    )
    volumes = await attach.find_mounted(creates.database, draft.volumes, project_id=by.project_id)
    if volumes and (problems := list(volume_problems(draft.recovery, volumes[0].region, ("input", "recovery")))):
        raise Invalid(problems)
    wanted: frozenset[tuple[str, str, str]] = frozenset()
    if conflicts.has_waits:
        wanted = await _offers_of_older(creates, draft, by)
    fields, candidates = await fields_of(catalog, draft, by=by, defaults=defaults, volumes=volumes, wanted=wanted)
    if not candidates and draft.on_no_capacity is None:
        raise await _queued_behind(creates, draft, by)
    highest_price = max((each.price_per_hour_e5 for each in candidates), default=None)
    if held is not None:
        for candidate in candidates[:1]:
            held.refuse_other(candidate, draft)
        fields["max_hourly_price_e5"] = held.highest_price(draft)
        highest_price = None if highest_price is None else held.highest_price(draft)
    fields["lifetime"] = None if limits is None else limits.to_json()
    fields["recovery"] = None if draft.recovery is None else draft.recovery.to_json()
    usual: timedelta | None = None
    if candidates:
        usual = await creates.estimates.usual_time(
            project_id=by.project_id, product_name=draft.product_name, region=candidates[0].region
        )
    usual = usual or defaults.estimated_ready_time
    in_line = await creates.line.join(by.project_id)
    fields["estimated_ready_at"] = now() + in_line + usual if candidates else None
    want = None
    if highest_price is not None:  # else its budget is looked at when there is an offer
        seconds = seconds_to_end(limits, at=now())
        want = Want(by.project_id, by.token_id, fields["labels"], highest_price, seconds, draft.gpus)
    try:
        return await creates.insert(
            fields,
            request,
            usual=usual,
            volumes=volumes,
            want=want,
            is_guarded=conflicts.has_budget and want is not None,
            wanted=None if draft.on_no_capacity is None else draft.on_no_capacity.wanted(at=now()),
            unasked=unasked,
        )
    except asyncpg.NotNullViolationError as error:
        if error.table_name == attach.TABLE:
            raise attach.not_available() from None
        raise
    except asyncpg.UniqueViolationError as error:
        if error.constraint_name == attach.EXCLUSIVE_INDEX:
            raise attach.in_use() from None
        if error.constraint_name != NAME_INDEX:
            raise
        raise Conflict from None


def _needs_no_call(catalog: Catalog, draft: CreateDraft) -> bool:
    """Whether the provider is not called even if the name is taken: all that the draft names is cached."""
    names_others = draft.registry_auth_id is not None or draft.network_id is not None
    return not names_others and catalog.is_cached(template_id=draft.template_id)


def refuse_foreign(draft: CreateDraft, foreign: Collection[ProviderObjectKind]) -> None:
    """An object that another project created at the provider is as if it were not."""
    named = {
        ProviderObjectKind.TEMPLATE: ("TEMPLATE_NOT_FOUND", "template", draft.template_id, "templateId"),
        ProviderObjectKind.REGISTRY_AUTH: (
            "REGISTRY_AUTH_NOT_FOUND",
            "registry auth",
            draft.registry_auth_id,
            "registryAuthId",
        ),
        ProviderObjectKind.NETWORK: ("NETWORK_NOT_FOUND", "network", draft.network_id, "networkId"),
    }
    problems = [
        Problem(code, f"There is no {noun} {novita_id}.", ("input", field))
        for kind, (code, noun, novita_id, field) in named.items()
        if kind in foreign
    ]
    if problems:
        raise Invalid(problems)


def objects_of(draft: CreateDraft) -> list[tuple[ProviderObjectKind, str | None]]:
    """The objects at the provider that the create names."""
    return [
        (ProviderObjectKind.TEMPLATE, draft.template_id),
        (ProviderObjectKind.REGISTRY_AUTH, draft.registry_auth_id),
        (ProviderObjectKind.NETWORK, draft.network_id),
    ]


def request_of(draft: CreateDraft, by: Caller) -> IdempotentRequest:
    """The fingerprint covers everything but the key; without a key it is not needed."""
    if draft.idempotency_key is None:
        return IdempotentRequest(by, None, b"")
    fields = requested_fields(replace(draft, idempotency_key=None))
    return IdempotentRequest.of(by, draft.idempotency_key, "createInstance", fields)


def name_taken() -> Invalid:
    message = "Another instance has this name; choose another or delete that one first."
    return Invalid([Problem("INSTANCE_NAME_TAKEN", message, ("input", "name"))])


async def _offers_of_older(creates: CreateBatcher, draft: CreateDraft, by: Caller) -> frozenset[tuple[str, str, str]]:
    async with creates.database.read() as session:
        return await waits.wanted_by_older(session, **_place_of(draft, by))


async def _queued_behind(creates: CreateBatcher, draft: CreateDraft, by: Caller) -> QueuedBehind:
    async with creates.database.read() as session:
        return QueuedBehind(await waits.count_ahead(session, **_place_of(draft, by)))


def _place_of(draft: CreateDraft, by: Caller) -> dict[str, Any]:
    """Where it stands among the operations that wait."""
    priority = USUAL_PRIORITY if draft.on_no_capacity is None else draft.on_no_capacity.priority
    return {
        "project_id": by.project_id,
        "product_name": draft.product_name,
        "gpu_count": draft.gpus,
        "priority": priority,
        "since": now(),
    }


async def fields_of(
    catalog: Catalog,
    draft: CreateDraft,
    *,
    by: Caller,
    defaults: Defaults,
    volumes: Sequence[attach.MountedVolume] = (),
    wanted: Set[tuple[str, str, str]] = frozenset(),
) -> tuple[dict[str, Any], tuple[Candidate, ...]]:
    """The columns of the new instance that follow from the request, and the candidates but those that are `wanted` by
    others. Raises Refused if no region can serve it, unless it may wait for that."""
    quote = await quote_draft(catalog, draft, defaults=defaults, volumes=volumes)
    if quote.best is None:
        try:
            await refuse(catalog, quote)
        except NoCapacity:
            if draft.on_no_capacity is None:
                raise
    template = quote.template
    env = {variable.key: variable.value for variable in template.envs} if template else {}
    ports = [Port(port.port, port.type) for port in template.ports] if template else []
    exposed = ports if draft.ports is None else list(draft.ports)
    tools = [Tool(each.name, each.port, each.type) for each in template.tools] if template else []
    path = ("input", "healthCheck", "targetPort")
    problems = list(target_problems(draft.health_check, {port.port for port in exposed}, path))
    if draft.tools is not None:
        tools = list(draft.tools)
        problems += tool_problems(tools, {port.port: port.type for port in exposed})
    env |= draft.env or {}
    if draft.kind is InstanceKind.CPU and len(env) > MAX_ENV_OF_CPU:
        message = f"With the template's they are {len(env)}; a CPU instance takes {MAX_ENV_OF_CPU}."
        problems.append(Problem("INVALID_ENV", message, ("input", "env")))
    if problems:
        raise Invalid(problems)
    fields: dict[str, Any] = {
        "id": new_id(),
        "project_id": by.project_id,
        "owner_token_id": by.owner_id,
        "name": draft.name,
        "product_name": draft.product_name,
        "gpu_count": draft.gpus,
        "rootfs_size_gb": quote.requirements.rootfs_size_gb,
        "billing": draft.billing,
        "max_hourly_price_e5": draft.max_hourly_price_e5,
        "regions": list(quote.requirements.regions),
        "template_id": draft.template_id,
        "image": template.image if template else str(draft.image).strip(),
        "image_auth_id": draft.registry_auth_id or (template.image_auth_id if template else None),
        "command": draft.command if draft.command is not None else (template.start_command if template else None),
        "entrypoint": draft.entrypoint if draft.entrypoint is not None else (template.entrypoint if template else None),
        "env": sealed(env, defaults.cipher),
        "secret_env": secret_names(env, draft.secret_env),
        "ports": [{"port": port.port, "type": port.type} for port in exposed],
        "tools": [asdict(tool) for tool in tools],
        "min_cuda_version": draft.min_cuda_version or _template_cuda(draft, template),
        "network_id": draft.network_id,
        "volumes": [volume.to_json() for volume in volumes],
        "labels": dict(draft.labels),
        "health_check": draft.health_check.to_json(),
        "webhook_url": draft.webhook_url,
        "placement": quote.requirements.order,
        **ready_timeout_fields(draft.ready_timeout),
    }
    free = (
        each for each in quote.placement.candidates if (each.region, each.product_id, each.billing_mode) not in wanted
    )
    return fields, tuple(free)


def _template_cuda(draft: CreateDraft, template: Template | None) -> str | None:
    """A template for GPUs may also serve a CPU instance, which has no CUDA."""
    return template.min_cuda_version if template and draft.kind is InstanceKind.GPU else None
