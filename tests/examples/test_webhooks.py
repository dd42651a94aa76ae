"""The example receivers accept what Pilotlight has signed, and nothing else."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest

from tests.examples.programs import python, running, typescript
from tests.support.processes import free_port, is_free
from tests.support.waiting import until
from tests.support.watcher import GraphQLClient

Command = Callable[[str], list[str]]
RECEIVING: dict[str, Command] = {
    "aiohttp": lambda port: python("python/receive_webhooks.py", port),
    "node": lambda port: typescript("webhooks.js", port),
}
CREATE = """
    mutation ($name: String!, $url: String!) {
      createInstance(
        input: {name: $name, productName: "RTX 4090 24GB", image: "nginx", ports: [{port: 80}], webhookUrl: $url}
      ) {
        instance { id }
        errors { code message }
      }
    }
"""


@pytest.mark.parametrize("example", RECEIVING)
async def test_it_takes_what_is_signed_and_refuses_what_is_not(example: str, caller: GraphQLClient, tmp_path: Path):
    rotated = await caller.ask("mutation { rotateWebhookSecret { secret } }")
    port = free_port()
    command = RECEIVING[example](str(port))

    async with running(command, tmp_path, WEBHOOK_SECRET=rotated["rotateWebhookSecret"]["secret"]) as program:
        await until(lambda: answers(port))
        url = f"http://127.0.0.1:{port}/"
        created = await caller.ask(CREATE, name=f"{example}-hooked", url=url)
        id = created["createInstance"]["instance"]["id"]
        await program.prints(f"instance.ready {id} READY")
        tested = await caller.ask(
            "mutation ($url: String!) { testWebhook(input: {url: $url}) { errors { code } } }", url=url
        )
        assert tested["testWebhook"]["errors"] == []
        await program.prints("webhook.test")

        body = json.dumps({"type": "instance.ready", "data": {"instanceId": "inst_forged", "status": "READY"}})
        forged = {"webhook-id": "msg_1", "webhook-timestamp": str(int(time.time())), "webhook-signature": "v1,Zm9yZ2Vk"}
        async with aiohttp.ClientSession() as session, session.post(url, data=body, headers=forged) as response:
            assert response.status == 401
        await program.prints("not believed")

    assert not any("inst_forged" in line for line in program.lines)
    assert sum(f"instance.ready {id}" in line for line in program.lines) == 1


async def answers(port: int) -> bool:
    return not is_free(port)
