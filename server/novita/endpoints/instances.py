"""Instances: create, read, start, stop, change, delete."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from server.errors import ValidationFailed
from server.novita.endpoints.pages import PAGE_SIZE, read_all_pages
from server.novita.models.base import ProviderPage, id_of, page_of
from server.novita.models.instance import RemoteInstance
from server.novita.models.request import CreateInstance, Port, UpgradeInstance, env_secrets
from server.novita.transport.concurrency import CallPriority
from server.novita.transport.json_reader import JsonReader
from server.novita.transport.request import ApiCalls, get, ignore_body, post

PAGE_SIZE_MIN = 10


class InstanceCalls(ApiCalls):
    async def create_instance(self, request: CreateInstance, *, asked_at: float | None = None) -> str:
        """Create and start an instance; returns its id.

        Never retried: the API has no idempotency key, so a second request creates a second billed machine. On an error,
        `is_certain_refusal` says that nothing was created; if it is False, search for `request.name` first.
        It is not sent later than the deadline after `asked_at`, a `now()` of this client: if the process was paused
        since then, another worker may have given the attempt up.
        """
        call = post(
            "/gpu/instance/create",
            request.to_json(),
            is_repeatable=False,
            secrets=request.secrets(),
            asked_at=asked_at,
        )
        return await self._transport.call(call, id_of("id"))

    async def check_create(self) -> None:
        """Raise what `create_instance` would raise now without sending anything: CircuitOpen, Suspended, ..."""
        await self._transport.check("POST /gpu/instance/create")

    async def instance(self, novita_id: str, *, priority: CallPriority = CallPriority.USER) -> RemoteInstance:
        return await self._transport.call(get("/gpu/instance", instanceId=novita_id), _instance, priority=priority)

    async def instances(
        self,
        *,
        page: int = 1,
        page_size: int = PAGE_SIZE,
        name: str | None = None,
        product_name: str | None = None,
        status: str | None = None,
        priority: CallPriority = CallPriority.USER,
    ) -> ProviderPage[RemoteInstance]:
        """One page, counted from 1. `name` and `product_name` match substrings, so check the result."""
        call = get(
            "/gpu/instances", pageNum=page, pageSize=page_size, name=name, productName=product_name, status=status
        )
        return await self._transport.call(call, page_of(RemoteInstance.read, "instances"), priority=priority)

    async def all_instances(
        self,
        *,
        name: str | None = None,
        product_name: str | None = None,
        status: str | None = None,
        page_size: int = PAGE_SIZE,
        must_be_complete: bool = False,
        priority: CallPriority = CallPriority.POLL,
    ) -> list[RemoteInstance]:
        """All pages, each machine once. Changes during the read may hide an instance: read it by id before treating it
        as deleted, or pass `must_be_complete` to get ProviderError if fewer are found than the list says it has.

        How large a page may be is undocumented: a page size that is refused is halved.
        """
        fetch = partial(self.instances, name=name, product_name=product_name, status=status, priority=priority)

        async def read(number: int) -> ProviderPage[RemoteInstance]:
            nonlocal page_size
            try:
                return await fetch(page=number, page_size=page_size)
            except ValidationFailed:
                if number != 1 or page_size < 2 * PAGE_SIZE_MIN:
                    raise
                page_size //= 2
                return await read(number)

        return await read_all_pages(read, of="instances", must_be_complete=must_be_complete)

    async def start_instance(self, novita_id: str) -> None:
        """Start an exited instance. InvalidStateChange may come although it was accepted: check the status."""
        await self._act("start", novita_id)

    async def stop_instance(self, novita_id: str) -> None:
        await self._act("stop", novita_id)

    async def restart_instance(self, novita_id: str) -> None:
        """Not retried: a second restart would interrupt the first one."""
        await self._act("restart", novita_id, is_repeatable=False)

    async def delete_instance(
        self,
        novita_id: str,
        *,
        is_repeatable: bool = True,
        priority: CallPriority = CallPriority.USER,
        before_sending: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """ProviderNotFound means that it is already deleted. `before_sending` is awaited once the call need not wait
        any more."""
        body = {"instanceId": novita_id}
        call = post("/gpu/instance/delete", body, is_repeatable=is_repeatable, before_sending=before_sending)
        await self._transport.call(call, ignore_body, priority=priority)

    async def edit_instance(
        self,
        novita_id: str,
        *,
        ports: Sequence[Port] | None = None,
        expand_rootfs_gb: int = 0,
    ) -> None:
        """Set all ports (None keeps them) and add to the root disk; a repeated call adds again."""
        body: dict[str, object] = {"instanceId": novita_id, "expandRootDisk": expand_rootfs_gb}
        if ports is not None:
            body["ports"] = [{"port": port.port, "type": port.type} for port in ports]
        call = post("/gpu/instance/edit", body, is_repeatable=expand_rootfs_gb == 0)
        await self._transport.call(call, ignore_body)

    async def upgrade_instance(self, novita_id: str, request: UpgradeInstance) -> None:
        """Change image and start settings; the machine is reset."""
        call = post(
            "/gpu/instance/upgrade",
            {"instanceId": novita_id, **request.to_json()},
            is_repeatable=False,
            secrets=env_secrets(request.envs),
        )
        await self._transport.call(call, ignore_body)

    async def migrate_instance(self, novita_id: str) -> None:
        """Move to another node, losing new data on local disks; the id stays."""
        await self._act("migrate", novita_id, is_repeatable=False)

    async def set_auto_migrate(self, novita_id: str, *, is_on: bool, system_disk: bool = False) -> None:
        call = post(
            "/gpu/instance/setAutoMigrate",
            {"instanceId": novita_id, "autoMigrateOpen": is_on, "autoMigrateSystemDisk": system_disk},
            is_repeatable=True,
        )
        await self._transport.call(call, ignore_body)

    async def renew_instance(self, novita_id: str, *, months: int) -> None:
        call = post("/gpu/instance/renewInstance", {"instanceId": novita_id, "month": months}, is_repeatable=False)
        await self._transport.call(call, ignore_body)

    async def to_monthly_instance(self, novita_id: str, *, months: int) -> None:
        call = post(
            "/gpu/instance/transToMonthlyInstance", {"instanceId": novita_id, "month": months}, is_repeatable=False
        )
        await self._transport.call(call, ignore_body)

    async def _act(self, verb: str, novita_id: str, *, is_repeatable: bool = True) -> None:
        call = post(f"/gpu/instance/{verb}", {"instanceId": novita_id}, is_repeatable=is_repeatable)
        await self._transport.call(call, ignore_body)


def _instance(raw: JsonReader) -> RemoteInstance:
    # One public client unwraps an envelope here; it is not documented.
    return RemoteInstance.read(raw.nested("instance") if "instance" in raw and "id" not in raw else raw)
