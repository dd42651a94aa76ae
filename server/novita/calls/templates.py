"""Templates, and the registry credentials that they refer to."""

from collections.abc import Sequence

from pydantic import SecretStr

from server.novita.call import Call, get, post
from server.novita.calls.base import Calls, nothing
from server.novita.fields import Fields, Unreadable
from server.novita.priority import Priority
from server.novita.wire.page import Page
from server.novita.wire.registry import RegistryAuth
from server.novita.wire.request import env_secrets
from server.novita.wire.template import Template, TemplateDraft


class TemplateCalls(Calls):
    async def templates(
        self,
        *,
        page: int = 1,
        page_size: int = 100,
        name: str | None = None,
        channels: Sequence[str] = (),
        priority: Priority = Priority.USER,
    ) -> Page[Template]:
        """One page, counted from 1. `channels` are private, official and community."""
        call = get(
            "/templates", pageNum=page, pageSize=page_size, name=name, channel=tuple(channels) or None, type="instance"
        )
        return await self._caller.call(call, _templates, priority=priority)

    async def template(self, template_id: str, *, priority: Priority = Priority.USER) -> Template:
        return await self._caller.call(get("/template", templateId=template_id), _template, priority=priority)

    async def create_template(self, draft: TemplateDraft, *, priority: Priority = Priority.USER) -> str:
        """Returns the new id. Not repeated on failure: there could be two of them."""
        call = post(
            "/template/create",
            {"template": draft.to_json()},
            is_repeatable=False,
            secrets=env_secrets(draft.envs),
        )
        return await self._caller.call(call, _template_id, priority=priority)

    async def update_template(
        self, template_id: str, draft: TemplateDraft, *, priority: Priority = Priority.USER
    ) -> None:
        """Replace all of it."""
        call = post(
            "/template/update",
            {"template": {**draft.to_json(), "Id": template_id}},
            is_repeatable=True,
            secrets=env_secrets(draft.envs),
        )
        await self._caller.call(call, nothing, priority=priority)

    async def delete_template(self, template_id: str, *, priority: Priority = Priority.USER) -> None:
        call = post("/template/delete", {"templateId": template_id}, is_repeatable=True)
        await self._caller.call(call, nothing, priority=priority)

    async def registry_auths(self, *, priority: Priority = Priority.USER) -> list[RegistryAuth]:
        return await self._caller.call(get("/repository/auths"), _registry_auths, priority=priority)

    async def save_registry_auth(
        self, *, name: str, username: str, password: SecretStr, priority: Priority = Priority.USER
    ) -> None:
        """Store a credential. The provider does not tell its id: list and match by name, which may not be unique."""
        await self._caller.call(_save_auth(name, username, password), nothing, priority=priority)

    async def delete_registry_auth(self, auth_id: str, *, priority: Priority = Priority.USER) -> None:
        call = post("/repository/auth/delete", {"id": auth_id}, is_repeatable=True)
        await self._caller.call(call, nothing, priority=priority)


def _save_auth(name: str, username: str, password: SecretStr) -> Call:
    # Its own function, so that no frame that a traceback shows ever held the clear text in a variable.
    return post(
        "/repository/auth/save",
        {"name": name, "username": username, "password": password.get_secret_value()},
        is_repeatable=False,
        secrets=(password,),
    )


def _templates(raw: Fields) -> Page[Template]:
    # The key is singular for the list too.
    return Page(tuple(Template.read(item) for item in raw.listed("template", "templates")), raw.integer("total"))


def _template(raw: Fields) -> Template:
    found = raw.objects("template")
    if len(found) != 1:
        raise Unreadable("it has no template")
    return Template.read(found[0])


def _template_id(raw: Fields) -> str:
    return raw.identity("templateId")


def _registry_auths(raw: Fields) -> list[RegistryAuth]:
    return [RegistryAuth.read(item) for item in raw.listed("data")]
