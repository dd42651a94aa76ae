"""Keys are replaced as docs/operating.md says, while processes of two neighbouring steps run side by side."""

from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from pydantic import SecretStr

from server.cli import doctor
from server.cli.encrypt import encrypt
from server.config import Settings
from server.enums import InstanceStatus, Role
from server.instances.env import INSTANCE_ID, MACHINE
from tests.support.api import Api
from tests.support.api_server import Server, serving
from tests.support.receiver import Receiver

S = InstanceStatus
OLD, NEW = "an old key of at least 32 characters", "a new key of at least 32 characters!"
STEPS = (OLD, f"{OLD},{NEW}", f"{NEW},{OLD}", NEW)
ENV = {"HF_TOKEN": "hf_hidden", "MODEL": "a-model"}
STORED = "query ($id: ID!) { instance(id: $id) { env { key value } } }"
ROTATE = "mutation { rotateWebhookSecret(input: {overlap: 0}) { secret errors { code } } }"


def process(api: Api, setting: str, keys: str) -> AbstractAsyncContextManager[Server]:
    """A server with these keys, on the same database."""
    return serving(api.server.runtime.database_url, api.server.simulator, **{setting: SecretStr(keys)})


async def finding(api: Api, capsys: pytest.CaptureFixture[str], name: str, **settings: Any) -> str:
    """What `pilotlight doctor` says about it."""
    capsys.readouterr()
    await doctor.examine(Settings(database_url=SecretStr(api.server.runtime.database_url), **settings))
    return next(line for line in capsys.readouterr().out.splitlines() if f" {name} " in line)


async def test_the_encryption_key_is_replaced_while_everything_runs(api: Api, capsys: pytest.CaptureFixture[str]):
    made: list[str] = []

    async def create(server: Server, *, worker_keys: str) -> None:
        """Accepted by the one process and carried out by the other."""
        name = f"sealed-{len(made)}"
        env = [{"key": key, "value": value} for key, value in ENV.items()]
        accepted = await replace(api, server=server).create(name=name, env=env)
        assert accepted["errors"] == []
        made.append(accepted["instance"]["id"])
        await api.world.configure(encryption_key=SecretStr(worker_keys))
        await api.world.work_until_status(UUID(made[-1].removeprefix("inst_")), S.READY)
        (machine,) = [each for each in api.world.machines() if each.name.startswith(name)]
        assert dict(machine.envs) == {**ENV, INSTANCE_ID: made[-1], MACHINE: "1"}

    async def assert_readable(server: Server) -> None:
        for id in made:
            answer = await server.ask(STORED, token=api.token, variables={"id": id})
            shown = {each["key"]: each["value"] for each in answer.data["instance"]["env"]}
            assert shown == {**ENV, "HF_TOKEN": None}  # a secret is shown to no caller

    for before, after in pairwise(STEPS):
        if after == NEW:
            both = SecretStr(before)
            assert "are not stored with the first key" in await finding(api, capsys, "encryption", encryption_key=both)
            await encrypt(Settings(encryption_key=both), api.server.runtime.database_url, undo=False)
            told = await finding(api, capsys, "encryption", encryption_key=SecretStr(NEW))
            assert "all variables are stored with the first key" in told
        async with process(api, "encryption_key", before) as old, process(api, "encryption_key", after) as new:
            await create(old, worker_keys=after)
            await create(new, worker_keys=before)
            for server in (old, new):
                await assert_readable(server)

    assert len(made) == 6


async def test_the_signing_key_is_replaced_while_everything_runs(
    api: Api, receiver: Receiver, capsys: pytest.CaptureFixture[str]
):
    async def secret_of(server: Server) -> str:
        answer = await server.ask(ROTATE, token=admin)
        assert answer.data["rotateWebhookSecret"]["errors"] == []
        return answer.data["rotateWebhookSecret"]["secret"]

    async def assert_delivered(name: str, *, worker_keys: str) -> None:
        """Signed, by a process with these keys, with the secret that the receiver has."""
        await api.world.configure(webhook_signing_key=SecretStr(worker_keys))
        accepted = await api.create(name=name, webhookUrl=receiver.url)
        assert accepted["errors"] == []
        await api.world.work_until_status(UUID(accepted["instance"]["id"].removeprefix("inst_")), S.READY)
        await api.world.work_until(
            lambda: api.world.value("SELECT NOT EXISTS (SELECT FROM delivery WHERE status = 'PENDING')")
        )
        assert {each["type"] for each in receiver.verify(secret)} >= {"instance.created", "instance.ready"}
        receiver.got.clear()

    admin, _ = await api.world.new_token(role=Role.ADMIN)
    async with process(api, "webhook_signing_key", OLD) as server:
        secret = await secret_of(server)
    for number, (before, after) in enumerate(pairwise(STEPS)):
        if after == NEW:
            # Every project gets a new secret; only then does no secret need the old key.
            told = await finding(api, capsys, "webhooks", webhook_signing_key=SecretStr(before))
            assert "1 projects still need a previous key" in told
            async with process(api, "webhook_signing_key", before) as server:
                secret = await secret_of(server)
            told = await finding(api, capsys, "webhooks", webhook_signing_key=SecretStr(before))
            assert "previous key" not in told
        for side, keys in (("before", before), ("after", after)):
            await assert_delivered(f"{side}-{number}", worker_keys=keys)
