"""A worker that was paused between committing an attempt and sending the create does not send it."""

import time

import pytest

from server.enums import InstanceStatus
from server.errors import ProviderUnreachable
from server.novita.models import CreateInstance
from tests.support.world import CREATE, World

PAUSED = 300.0  # seconds; longer than any deadline of the client


async def test_create_is_not_sent_long_after_its_attempt_was_committed(world: World, monkeypatch: pytest.MonkeyPatch):
    accepted = await world.create("paused")
    with monkeypatch.context() as patch:
        patch.setattr(world.novita, "now", lambda: time.monotonic() - PAUSED)
        await world.work_once()

    assert world.calls(CREATE) == 0
    assert [status for _, _, status, _ in await world.attempts(accepted.operation.id)] == ["REJECTED"]

    await world.hurry()
    await world.work_until_status(accepted.instance.id, InstanceStatus.READY)
    assert world.made() == 1


async def test_create_past_its_deadline_is_certainly_not_sent(world: World):
    request = CreateInstance(name="late", product_id="p", image="i", rootfs_gb=10)
    with pytest.raises(ProviderUnreachable) as refusal:
        await world.novita.create_instance(request, asked_at=time.monotonic() - PAUSED)

    assert refusal.value.is_certain_refusal
    assert world.calls(CREATE) == 0
