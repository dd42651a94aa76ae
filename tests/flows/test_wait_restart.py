"""kill -9 of everything while a create waits for capacity: the next start goes on waiting, and takes what comes."""

from pathlib import Path

from tests.support.processes import control, made, pilotlight, up
from tests.support.waiting import until
from tests.support.watcher import GraphQLClient

# Nothing of this product is free at first.
CREATE = """
    mutation {
      createInstance(input: {name: "patient", productName: "H200 SXM 141GB", image: "nginx", ports: [{port: 80}],
                             onNoCapacity: {wait: {for: 3600}, priority: 70}}) {
        instance { id } operation { id } errors { code }
      }
    }
"""
WAIT = "query ($id: ID!) { operation(id: $id) { status wait { since until priority position } } }"
STOCK = {"productId": "h200.24c220g", "clusterId": "eu-gb-1", "free": 1}


async def test_wait_goes_on_after_everything_was_killed(home: Path):
    async with pilotlight("simulate", "--port", "0") as simulator:
        await simulator.says("nothing real is created")
        url = next(word for word in simulator.said.split() if word.startswith("http://"))
        settings = {"NOVITA_API_KEY": "sk_x", "NOVITA_API_BASE_URL": url, "MARKET_HOT": "1s", "MARKET_CALLS": "1000"}
        async with up(home, env=settings) as running:
            caller = GraphQLClient(running.graphql_url, running.token)
            accepted = (await caller.ask(CREATE))["createInstance"]
            assert accepted["errors"] == []
            operation = accepted["operation"]["id"]

            async def waits() -> bool:
                return (await caller.ask(WAIT, id=operation))["operation"]["wait"] is not None

            await until(waits)
            before = (await caller.ask(WAIT, id=operation))["operation"]
            await running.kill_tree()
        async with up(home, env=settings) as running:
            caller = GraphQLClient(running.graphql_url, running.token)
            assert (await caller.ask(WAIT, id=operation))["operation"] == before
            await control(url, "stock", STOCK)
            await caller.becomes(accepted["instance"]["id"], "READY", within=60)
            assert (await caller.ask(WAIT, id=operation))["operation"] == {"status": "SUCCEEDED", "wait": None}
        assert (before["wait"]["priority"], before["wait"]["position"], await made(url)) == (70, 1, 1)
