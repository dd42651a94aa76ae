"""Lists and calls every tool with the official SDK 1.x, which speaks the protocol that begins with `initialize`.

Run in an environment of its own: the server's has SDK 2.x. Arguments: the URL of /mcp and a token, or the command of a
server over stdio. Prints the negotiated version and the tools that were called, as JSON.
"""

import asyncio
import json
import os
import sys
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client


@asynccontextmanager
async def streams(target, *more):
    if target.startswith("http"):
        async with streamablehttp_client(target, headers={"authorization": f"Bearer {more[0]}"}) as (read, write, _):
            yield read, write
    else:
        async with stdio_client(StdioServerParameters(command=target, args=list(more), env=dict(os.environ))) as both:
            yield both


async def main(*target) -> None:
    name, called = f"old-{uuid4().hex[:8]}", []
    async with streams(*target) as (read, write), ClientSession(read, write) as session:
        version = (await session.initialize()).protocolVersion
        listed = [tool.name for tool in (await session.list_tools()).tools]

        async def use(tool, **arguments):
            result = await session.call_tool(tool, arguments)
            assert not result.isError, result.content
            called.append(tool)
            return result.structuredContent

        await use("find_offers", name="4090")
        await use("quote", product="RTX 4090 24GB")
        key = str(uuid4())
        wanted = {"name": name, "product": "RTX 4090 24GB", "image": "nginx", "ports": [80]}
        created = await use("create_instance", operation_key=key, max_duration_seconds=7200, **wanted)
        again = await use("create_instance", operation_key=key, max_duration_seconds=7200, **wanted)
        assert again["instance"]["id"] == created["instance"]["id"]
        assert created["max_cost"].endswith(" USD")
        waited = await use("wait_for", operation_id=created["operation"]["id"])
        assert waited["operation"]["status"] == "SUCCEEDED", waited
        assert (await use("get_instance", instance=name))["status"] == "READY"
        assert name in [each["name"] for each in (await use("list_instances"))["instances"]]
        until = datetime.now(UTC) + timedelta(hours=9)
        await use("extend_lifetime", operation_key=str(uuid4()), instance=name, until=until.isoformat())
        assert (await use("get_events", instance=name))["events"]
        await use("get_log", instance=name)
        await use("get_spend")
        for verb in ("stop_instance", "start_instance", "delete_instance"):
            accepted = await use(verb, operation_key=str(uuid4()), instance=name)
            await use("wait_for", operation_id=accepted["operation"]["id"])
        refused = await session.call_tool("get_instance", {"instance": "no such instance"})
        assert refused.isError
        assert "NOT_FOUND" in refused.content[0].text
    json.dump({"version": version, "listed": sorted(listed), "called": sorted(set(called))}, sys.stdout)


asyncio.run(main(*sys.argv[1:]))
