"""Instances: make, look, start, stop, change, delete."""

from collections.abc import Sequence

import structlog

from server.errors import ProviderError
from server.novita.call import get, post
from server.novita.calls.base import Calls, nothing
from server.novita.fields import Fields
from server.novita.priority import Priority
from server.novita.wire.instance import RemoteInstance
from server.novita.wire.page import Page
from server.novita.wire.request import CreateInstance, Port, UpgradeInstance, env_secrets

PAGE_SIZE = 100
MOST_PAGES = 1_000  # 100,000 instances; more than that is a list that never ends

log = structlog.get_logger()


class InstanceCalls(Calls):
    async def create_instance(
        self, request: CreateInstance, *, asked_at: float | None = None, priority: Priority = Priority.USER
    ) -> str:
        """Make and start an instance; returns its id.

        Sent once and never again: there is no idempotency key, so a second request makes a second billed machine. On
        an error, `is_certain_refusal` tells if nothing was made; if it is False, look for `request.name` first.
        It is not sent later than the deadline after `asked_at`, a `moment()` of this client: whoever was paused since
        then can't know whether others have given it up.
        """
        call = post(
            "/gpu/instance/create",
            request.to_json(),
            is_repeatable=False,
            secrets=request.secrets(),
            asked_at=asked_at,
        )
        return await self._caller.call(call, _id, priority=priority)

    async def instance(self, novita_id: str, *, priority: Priority = Priority.USER) -> RemoteInstance:
        return await self._caller.call(get("/gpu/instance", instanceId=novita_id), _instance, priority=priority)

    async def instances(
        self,
        *,
        page: int = 1,
        page_size: int = PAGE_SIZE,
        name: str | None = None,
        product_name: str | None = None,
        status: str | None = None,
        priority: Priority = Priority.USER,
    ) -> Page[RemoteInstance]:
        """One page, counted from 1. `name` and `product_name` match parts, so look again at what comes back."""
        call = get(
            "/gpu/instances", pageNum=page, pageSize=page_size, name=name, productName=product_name, status=status
        )
        return await self._caller.call(call, _instances, priority=priority)

    async def all_instances(
        self,
        *,
        name: str | None = None,
        product_name: str | None = None,
        status: str | None = None,
        page_size: int = PAGE_SIZE,
        priority: Priority = Priority.POLL,
    ) -> list[RemoteInstance]:
        """Every page. Instances that come or go meanwhile may be missing: look one up before calling it gone."""
        found: dict[str, RemoteInstance] = {}
        for page in range(1, MOST_PAGES + 1):
            answer = await self.instances(
                page=page, page_size=page_size, name=name, product_name=product_name, status=status, priority=priority
            )
            before = len(found)
            found.update((each.id, each) for each in answer.items)
            # Nobody knows the largest page that is served, so a short one is the last only if the count agrees.
            is_short = len(answer.items) < page_size
            if is_short and (answer.total is None or len(found) >= answer.total):
                return list(found.values())
            if len(found) == before:
                if answer.total is not None and len(found) < answer.total:
                    log.warning("novita list is shorter than it says", found=len(found), total=answer.total)
                return list(found.values())
        raise ProviderError(f"the list of instances does not end after {MOST_PAGES} pages")

    async def start_instance(self, novita_id: str, *, priority: Priority = Priority.USER) -> None:
        """Start an exited instance. InvalidStateChange may come although it was accepted: look before believing it."""
        await self._act("start", novita_id, priority)

    async def stop_instance(self, novita_id: str, *, priority: Priority = Priority.USER) -> None:
        await self._act("stop", novita_id, priority)

    async def restart_instance(self, novita_id: str, *, priority: Priority = Priority.USER) -> None:
        """Not repeated on failure: a second restart would interrupt what the first one brought up."""
        await self._act("restart", novita_id, priority, is_repeatable=False)

    async def delete_instance(self, novita_id: str, *, priority: Priority = Priority.USER) -> None:
        """ProviderNotFound means that it is gone already."""
        await self._act("delete", novita_id, priority)

    async def edit_instance(
        self,
        novita_id: str,
        *,
        ports: Sequence[Port] | None = None,
        expand_rootfs_gb: int = 0,
        priority: Priority = Priority.USER,
    ) -> None:
        """All ports as they shall be (None leaves them), and how much to add to the root disk; twice adds twice."""
        body: dict[str, object] = {"instanceId": novita_id, "expandRootDisk": expand_rootfs_gb}
        if ports is not None:
            body["ports"] = [{"port": port.port, "type": port.type} for port in ports]
        call = post("/gpu/instance/edit", body, is_repeatable=expand_rootfs_gb == 0)
        await self._caller.call(call, nothing, priority=priority)

    async def upgrade_instance(
        self, novita_id: str, request: UpgradeInstance, *, priority: Priority = Priority.USER
    ) -> None:
        """Another image and start settings on the same machine, which is reset for it."""
        call = post(
            "/gpu/instance/upgrade",
            {"instanceId": novita_id, **request.to_json()},
            is_repeatable=False,
            secrets=env_secrets(request.envs),
        )
        await self._caller.call(call, nothing, priority=priority)

    async def migrate_instance(self, novita_id: str, *, priority: Priority = Priority.USER) -> str | None:
        """Move to another node, losing new data on its own disks; the id stays. Returns the job's id if one is told."""
        call = post("/gpu/instance/migrate", {"instanceId": novita_id}, is_repeatable=False)
        return await self._caller.call(call, _job_id, priority=priority)

    async def set_auto_migrate(
        self, novita_id: str, *, is_on: bool, system_disk: bool = False, priority: Priority = Priority.USER
    ) -> None:
        call = post(
            "/gpu/instance/setAutoMigrate",
            {"instanceId": novita_id, "autoMigrateOpen": is_on, "autoMigrateSystemDisk": system_disk},
            is_repeatable=True,
        )
        await self._caller.call(call, nothing, priority=priority)

    async def renew_instance(self, novita_id: str, *, months: int, priority: Priority = Priority.USER) -> None:
        call = post("/gpu/instance/renewInstance", {"instanceId": novita_id, "month": months}, is_repeatable=False)
        await self._caller.call(call, nothing, priority=priority)

    async def to_monthly_instance(self, novita_id: str, *, months: int, priority: Priority = Priority.USER) -> None:
        call = post(
            "/gpu/instance/transToMonthlyInstance", {"instanceId": novita_id, "month": months}, is_repeatable=False
        )
        await self._caller.call(call, nothing, priority=priority)

    async def _act(self, verb: str, novita_id: str, priority: Priority, *, is_repeatable: bool = True) -> None:
        call = post(f"/gpu/instance/{verb}", {"instanceId": novita_id}, is_repeatable=is_repeatable)
        await self._caller.call(call, nothing, priority=priority)


def _id(raw: Fields) -> str:
    return raw.identity("id")


def _job_id(raw: Fields) -> str | None:
    return raw.maybe("jobId")


def _instance(raw: Fields) -> RemoteInstance:
    # One public client unwraps an envelope here; the documents know none.
    return RemoteInstance.read(raw.within("instance") if "instance" in raw and "id" not in raw else raw)


def _instances(raw: Fields) -> Page[RemoteInstance]:
    return Page(tuple(RemoteInstance.read(item) for item in raw.listed("instances")), raw.integer("total"))
