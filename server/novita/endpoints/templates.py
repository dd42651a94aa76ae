"""Templates, and the registry credentials they refer to."""

from collections.abc import Sequence

from pydantic import SecretStr

from server.novita.models.base import ProviderPage, id_of, list_of, only, page_of
from server.novita.models.request import env_secrets
from server.novita.models.template import RegistryAuth, Template, TemplateDraft
from server.novita.transport.request import ApiCall, ApiCalls, get, ignore_body, post


class TemplateCalls(ApiCalls):
    async def templates(
        self,
        *,
        page: int = 1,
        page_size: int = 100,
        name: str | None = None,
        channels: Sequence[str] = (),
    ) -> ProviderPage[Template]:
        """One page, counted from 1. `channels` are private, official and community."""
        call = get(
            "/templates", pageNum=page, pageSize=page_size, name=name, channel=tuple(channels) or None, type="instance"
        )
        # The key of the list is singular, too.
        return await self._transport.call(call, page_of(Template.read, "template", "templates"))

    async def template(self, template_id: str) -> Template:
        return await self._transport.call(get("/template", templateId=template_id), only(Template.read, "template"))

    async def create_template(self, draft: TemplateDraft) -> str:
        """Returns the new id. Not retried: it could create two."""
        call = post(
            "/template/create",
            {"template": draft.to_json()},
            is_repeatable=False,
            secrets=env_secrets(draft.envs),
        )
        return await self._transport.call(call, id_of("templateId"))

    async def update_template(self, template_id: str, draft: TemplateDraft) -> None:
        """Replace the whole template."""
        call = post(
            "/template/update",
            {"template": {**draft.to_json(), "Id": template_id}},
            is_repeatable=True,
            secrets=env_secrets(draft.envs),
        )
        await self._transport.call(call, ignore_body)

    async def delete_template(self, template_id: str) -> None:
        call = post("/template/delete", {"templateId": template_id}, is_repeatable=True)
        await self._transport.call(call, ignore_body)

    async def registry_auths(self) -> list[RegistryAuth]:
        return await self._transport.call(get("/repository/auths"), list_of(RegistryAuth.read, "data"))

    async def save_registry_auth(self, *, name: str, username: str, password: SecretStr) -> None:
        """Store a credential. The response has no id: list and match by name, which may not be unique."""
        await self._transport.call(_save_auth(name, username, password), ignore_body)

    async def delete_registry_auth(self, auth_id: str) -> None:
        call = post("/repository/auth/delete", {"id": auth_id}, is_repeatable=True)
        await self._transport.call(call, ignore_body)


def _save_auth(name: str, username: str, password: SecretStr) -> ApiCall:
    # A function of its own, so that no frame of a traceback has the clear text in a variable.
    return post(
        "/repository/auth/save",
        {"name": name, "username": username, "password": password.get_secret_value()},
        is_repeatable=False,
        secrets=(password,),
    )
