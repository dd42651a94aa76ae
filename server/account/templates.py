"""Templates of the account: created, changed and deleted by the project that owns them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, TypeVar

import orjson

from server.account.object_rows import Seen, record_changed
from server.account.objects import Account, Creation, Editor, call, create_object, delete_object, require_owner
from server.account.registry_auths import auth_problems
from server.auth.caller import Caller
from server.catalog.catalog import Template
from server.db.seals import Seals
from server.enums import InstanceKind, ProviderObjectKind
from server.errors import Invalid, NotFound, Problem, ProviderNotFound
from server.idempotency import IdempotentRequest, requested_fields
from server.instances.drafts import MAX_NAME, CreateDraft, Port
from server.instances.quote import DEFAULT_ROOTFS_GB
from server.instances.tools import Tool
from server.novita.models import Env, TemplateDraft
from server.novita.models import Port as NovitaPort
from server.novita.models import Tool as NovitaTool

KIND = ProviderObjectKind.TEMPLATE
MAX_PORTS_OF_TYPE = 10
MAX_README = 102_400

Value = TypeVar("Value", Port, Tool)
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class TemplateFields:
    """What a template says. In a change, None keeps what it has."""

    FIRST_FIELDS: ClassVar = frozenset[str]()
    name: str | None = None
    image: str | None = None
    registry_auth_id: str | None = None
    command: str | None = None
    entrypoint: str | None = None
    rootfs_size_gb: int | None = None
    ports: tuple[Port, ...] | None = None
    env: Mapping[str, str] | None = None
    tools: tuple[Tool, ...] | None = None
    min_cuda_version: str | None = None
    readme: str | None = None
    unreadable: tuple[Problem, ...] = ()

    def problems(self) -> Iterator[Problem]:
        """The same as of an instance that is created with these fields."""
        if self.name is not None and not (self.name.strip() and len(self.name) <= MAX_NAME and self.name.isprintable()):
            message = f"A template's name has 1 to {MAX_NAME} printable characters."
            yield Problem("INVALID_TEMPLATE_NAME", message, ("input", "name"))
        as_instance = CreateDraft(
            name="any",
            product_name="any",
            kind=InstanceKind.GPU,
            image="any" if self.image is None else self.image,
            registry_auth_id=self.registry_auth_id or None,
            command=self.command,
            entrypoint=self.entrypoint,
            rootfs_size_gb=self.rootfs_size_gb,
            ports=self.ports,
            env=self.env,
            tools=self.tools,
            min_cuda_version=self.min_cuda_version or None,
            unreadable=self.unreadable,
        )
        yield from as_instance.problems()
        for type in ("http", "tcp"):
            if sum(port.type == type for port in self.ports or ()) > MAX_PORTS_OF_TYPE:
                message = f"A template has at most {MAX_PORTS_OF_TYPE} {type} ports."
                yield Problem("INVALID_PORT", message, ("input", "ports"))
        if len(self.readme or "") > MAX_README:
            yield Problem("INVALID_README", f"The readme has at most {MAX_README} characters.", ("input", "readme"))


async def create_template(
    account: Account, fields: TemplateFields, *, key: str | None, by: Caller
) -> tuple[Template | None, bool]:
    """The new template, and whether an earlier request with the same key created it."""
    await _check(account, fields, by)
    name = fields.name or ""
    draft = _changed(TemplateDraft(name=name, image=fields.image or "", rootfs_gb=DEFAULT_ROOTFS_GB), fields)
    request = IdempotentRequest.of(by, key, "createTemplate", requested_fields(fields))
    creation = Creation(KIND, name, lambda: account.novita.create_template(draft), lambda: ids_of(account, name))
    created = await create_object(account, request, creation)
    if created.novita_id is None:
        return None, created.replayed
    await account.catalog.forget_template(created.novita_id)
    return await account.catalog.template(created.novita_id), created.replayed


async def update_template(account: Account, novita_id: str, fields: TemplateFields, *, by: Editor) -> Template | None:
    """Change the given fields. The provider replaces the whole template, so it is read first."""
    await _check(account, fields, by.caller)
    await require_owner(account, KIND, novita_id, exists=_exists, by=by)
    if account.is_dry_run:
        return None
    await account.catalog.forget_template(novita_id)
    try:
        draft = _changed(_draft_of(await account.catalog.template(novita_id)), fields)
        await call(lambda: account.novita.update_template(novita_id, draft))
    except ProviderNotFound:
        raise NotFound("template", ("input", "id")) from None
    finally:
        await account.catalog.forget_template(novita_id)
    template = await account.catalog.template(novita_id)
    await record_changed(account.database, KIND, seen(template, await _seals(account)), by=by.caller)
    return template


async def delete_template(account: Account, novita_id: str, *, by: Editor) -> None:
    await delete_object(account, KIND, novita_id, exists=_exists, send=account.novita.delete_template, by=by)
    await account.catalog.forget_template(novita_id)


async def all_seen(account: Account) -> list[Seen]:
    """The account's own; those of the provider have no project."""
    templates = await account.catalog.templates(channels=("private",), fresh=True)
    seals = await _seals(account)
    return [seen(template, seals) for template in templates]


def seen(template: Template, seals: Seals) -> Seen:
    """Values of variables may be secrets: what is kept of them can't be guessed from without the database's key."""
    values = orjson.dumps([env.value for env in template.envs])
    return Seen.of(
        template.id,
        template.name,
        *(template.image, template.image_auth_id, template.start_command, template.entrypoint, template.rootfs_gb),
        [asdict(port) for port in template.ports],
        [[env.key for env in template.envs], seals.digest(values).hex()],
        [asdict(tool) for tool in template.tools],
        *(template.min_cuda_version, template.readme),
    )


async def ids_of(account: Account, name: str) -> set[str]:
    """The ids of the account's own templates with this name, read now."""
    page = await account.novita.templates(name=name, channels=("private",))
    return {template.id for template in page.items if template.name == name}


async def _seals(account: Account) -> Seals:
    seals = Seals(account.database)
    await seals.load()
    return seals


async def _check(account: Account, fields: TemplateFields, by: Caller) -> None:
    problems = list(fields.problems())
    if not problems:
        problems = await auth_problems(account, fields.registry_auth_id, by=by)
    if problems:
        raise Invalid(problems)


async def _exists(account: Account, novita_id: str) -> bool:
    try:
        await account.catalog.template(novita_id)
    except ProviderNotFound:
        return False
    return True


def _draft_of(template: Template) -> TemplateDraft:
    return TemplateDraft(
        name=template.name,
        image=template.image,
        rootfs_gb=template.rootfs_gb or DEFAULT_ROOTFS_GB,
        channel=template.channel,
        type=template.type or "instance",
        image_auth_id=template.image_auth_id,
        start_command=template.start_command or "",
        entrypoint=template.entrypoint or "",
        ports=template.ports,
        envs=template.envs,
        tools=template.tools,
        volumes=template.volumes,
        readme=template.readme,
        min_cuda_version=template.min_cuda_version or "",
    )


def _changed(draft: TemplateDraft, fields: TemplateFields) -> TemplateDraft:
    """The draft with every field that is given."""
    given: dict[str, Any] = {
        "name": fields.name,
        "image": fields.image,
        "image_auth_id": fields.registry_auth_id,
        "start_command": fields.command,
        "entrypoint": fields.entrypoint,
        "rootfs_gb": fields.rootfs_size_gb,
        "ports": _each(fields.ports, lambda port: NovitaPort(port.port, port.type)),
        "envs": None if fields.env is None else tuple(Env(key, value) for key, value in fields.env.items()),
        "tools": _each(fields.tools, lambda tool: NovitaTool(tool.name, tool.port, tool.type)),
        "readme": fields.readme,
        "min_cuda_version": fields.min_cuda_version,
    }
    return replace(draft, **{name: value for name, value in given.items() if value is not None})


def _each(values: tuple[Value, ...] | None, convert: Callable[[Value], Result]) -> tuple[Result, ...] | None:
    return None if values is None else tuple(convert(value) for value in values)
