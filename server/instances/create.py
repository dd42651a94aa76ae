"""Accepting a create: everything is checked and looked up first, then four rows are written in one transaction."""

from dataclasses import asdict

import asyncpg

from server.auth.caller import Caller
from server.catalog.catalog import Catalog
from server.clock import new_id, now
from server.db.engine import Database
from server.db.tables import Instance
from server.errors import Invalid, Problem
from server.instances.acceptance import NotAdded, accept, look, row_of
from server.instances.choice import Defaults, choose, refuse_hopeless, region_order
from server.instances.drafts import CreateDraft, Port, target_problems
from server.instances.idempotency import Accepted, Asked, find
from server.instances.usual import usual_create

__all__ = ["NAME_INDEX", "Accepted", "Defaults", "create_instance", "name_taken"]

NAME_INDEX = "instance_name_is_unique_among_the_living"


async def create_instance(
    database: Database, catalog: Catalog, draft: CreateDraft, *, by: Caller, defaults: Defaults
) -> Accepted:
    """Accept a request for an instance; the worker does the creating.

    Nothing is written before everything is known to be right, so a refusal leaves nothing behind.
    """
    draft.check(defaults.inside)
    asked = asked_of(draft, by)
    looked = await look(database, project_id=by.project_id, name=draft.name, key=draft.idempotency_key)
    if looked.is_known or looked.is_taken:
        # Before the provider is asked anything. Unique indexes are what holds when two callers come at once; and the
        # one who has the name now may have come with our own key a moment ago.
        known = await find(database, asked)
        if known is not None:
            return known
        if looked.is_taken:
            raise name_taken()
    instance = await _prepared(catalog, draft, by=by, defaults=defaults)
    takes = await usual_create(
        database,
        project_id=by.project_id,
        product_name=draft.product_name,
        region=region_order(draft, defaults)[0],
    )
    vars(instance)["estimated_ready_at"] = now() + (takes or defaults.estimated_ready_time)
    try:
        return Accepted(instance, await accept(database, instance, asked))
    except NotAdded:
        pass
    except asyncpg.UniqueViolationError as error:
        if error.constraint_name != NAME_INDEX:
            raise
    # Somebody came before us with this key, or with this name.
    known = await find(database, asked)
    if known is None:
        raise name_taken()
    return known


def asked_of(draft: CreateDraft, by: Caller) -> Asked:
    """The same for the same input, whatever the key. Without one, nobody will ask what it was."""
    if draft.idempotency_key is None:
        return Asked(by, None, b"")
    fields = asdict(draft)
    del fields["idempotency_key"], fields["unreadable"]
    return Asked.of(by, draft.idempotency_key, "createInstance", fields)


def name_taken() -> Invalid:
    message = "Another instance has this name; choose another or delete that one first."
    return Invalid([Problem("INSTANCE_NAME_TAKEN", message, ("input", "name"))])


async def _prepared(catalog: Catalog, draft: CreateDraft, *, by: Caller, defaults: Defaults) -> Instance:
    choice = await choose(catalog, draft, defaults=defaults)
    refuse_hopeless(choice)
    template = choice.template
    env = {variable.key: variable.value for variable in template.envs} if template else {}
    ports = [Port(port.port, port.type) for port in template.ports] if template else []
    exposed = ports if draft.ports is None else list(draft.ports)
    path = ("input", "healthCheck", "targetPort")
    problems = list(target_problems(draft.health_check, {port.port for port in exposed}, path))
    if problems:
        raise Invalid(problems)
    return row_of(
        Instance,
        id=new_id(),
        project_id=by.project_id,
        name=draft.name,
        product_name=draft.product_name,
        gpu_count=draft.gpu_count,
        rootfs_size_gb=choice.wish.rootfs_size_gb,
        billing=draft.billing,
        max_hourly_price_e5=draft.max_hourly_price_e5,
        regions=list(choice.wish.regions),
        template_id=draft.template_id,
        image=template.image if template else str(draft.image).strip(),
        image_auth_id=draft.registry_auth_id or (template.image_auth_id if template else None),
        command=draft.command if draft.command is not None else (template.start_command if template else None),
        entrypoint=template.entrypoint if template else None,
        env={**env, **(draft.env or {})},
        ports=[asdict(port) for port in exposed],
        labels=dict(draft.labels),
        health_check=draft.health_check.stored(),
        webhook_url=draft.webhook_url,
        endpoints=[],
    )
