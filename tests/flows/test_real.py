"""`pilotlight up` with a key: it says that machines are real, checks the account, and keeps to its provider."""

import json
from pathlib import Path

import aiohttp

from tests.support.processes import run, up
from tests.support.watcher import GraphQLClient
from tests.support.world import a_simulator

KEY = "sk_real"


async def test_up_with_a_key_says_what_is_billed_and_keeps_to_its_account(home: Path):
    async with a_simulator(api_keys=(KEY,), is_anonymous=True) as real:
        settings = {"NOVITA_API_BASE_URL": real.url, "NOVITA_API_KEY": f"{KEY}\n"}
        mistaken = {**settings, "NOVITA_API_KEY": "sk_other", "JOB_LEESE": "3s"}
        wrong = await run("up", "--port", "0", "--home", str(home), env=mistaken)
        (unknown,) = [line for line in wrong.said.splitlines() if "settings.unknown" in line]
        assert "JOB_LEESE" in unknown
        assert "JOB_LEASE" in unknown
        assert (wrong.code, real.world.made.total()) == (1, 0)
        said = wrong.said.strip().splitlines()[-1]
        assert said == f"pilotlight: {real.url} does not accept NOVITA_API_KEY: invalid API key (HTTP 401)"

        async with up(home, env=settings) as running:
            line = f"every instance is a real machine at {real.url} and is billed; its balance is $100.00"
            assert f"REAL MACHINES NOVITA_API_KEY is set: {line}" in " ".join(running.said.split())
            assert "nothing is billed" not in running.said
            command = running.said.split("The same by GraphQL:")[1].split("Ctrl-C")[0].strip()
            body = json.loads(command.split("-d '")[1].rstrip("'"))
            assert "maxHourlyPrice: {amountMicros: 500000}" in body["query"]
            caller = GraphQLClient(running.graphql_url, running.token)
            assert (await caller.ask(body["query"]))["createInstance"]["errors"] == []
            seen = await caller.ask("{ serverInfo { provider { isSimulator } } }")
            assert seen["serverInfo"]["provider"]["isSimulator"] is False
            readyz = running.graphql_url.replace("graphql", "readyz")
            async with aiohttp.ClientSession() as http, http.get(readyz) as response:
                assert (await response.json())["checks"]["provider"] == "ok"
            assert await running.stop() == 0

        without = await run("up", "--port", "0", "--home", str(home))

    assert without.code == 1
    assert f"This database belongs to the Novita account at {real.url}, but the settings lead to" in without.said
