"""A GraphQL client as any user would write it: mutations over HTTP, events over WebSocket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from gql import Client, GraphQLRequest
from gql.transport.aiohttp import AIOHTTPTransport
from gql.transport.websockets import WebsocketsTransport

from tests.support.waiting import until

STORY = ["CREATING", "STARTING", "RUNNING", "HEALTH_CHECKING", "READY"]

CREATE = """
    mutation ($name: String!) {
      createInstance(input: {name: $name, productName: "RTX 4090 24GB", image: "nginx", ports: [{port: 80}]}) {
        instance { id status }
        operation { id status }
        errors { code message }
      }
    }
"""
EVENTS = """
    subscription ($after: String, $filter: InstanceEventFilter) {
      instanceEvents(after: $after, filter: $filter) { id cursor type status instanceId }
    }
"""
LOG = """query ($after: String) {
  events(first: 100, after: $after) { nodes { id } pageInfo { hasNextPage endCursor } }
}"""
INSTANCE = """
    query ($id: ID!) {
      instance(id: $id) { id name status novitaId version openOperation { id } failure { code message } }
    }
"""

Event = dict[str, Any]


class GraphQLClient:
    """A GraphQL client with a token."""

    def __init__(self, graphql_url: str, token: str) -> None:
        self.url = graphql_url
        self.headers = {"authorization": f"Bearer {token}"}

    async def ask(self, document: str, **variables: Any) -> dict[str, Any]:
        """Send it over HTTP; an error in the answer is raised."""
        transport = AIOHTTPTransport(self.url, headers=self.headers)
        async with Client(transport=transport, execute_timeout=30) as session:
            return await session.execute(GraphQLRequest(document, variable_values=variables))

    async def create(self, name: str) -> str:
        """Have an instance accepted, and give its id."""
        answer = (await self.ask(CREATE, name=name))["createInstance"]
        assert answer["errors"] == []
        assert answer["instance"]["status"] == "CREATING"
        return str(answer["instance"]["id"])

    async def instance(self, id: str) -> dict[str, Any]:
        return (await self.ask(INSTANCE, id=id))["instance"]

    async def log(self) -> list[str]:
        """The ids of all events of the project, in the order of the log."""
        found: list[str] = []
        page: dict[str, Any] = {"hasNextPage": True, "endCursor": None}
        while page["hasNextPage"]:
            answer = (await self.ask(LOG, after=page["endCursor"]))["events"]
            found += [node["id"] for node in answer["nodes"]]
            page = answer["pageInfo"]
        return found

    async def becomes(self, id: str, status: str, *, within: float = 30.0) -> dict[str, Any]:
        """Ask until the instance has that status; then it is returned."""
        instance = await self.instance(id)

        async def is_there() -> bool:
            instance.update(await self.instance(id))
            return instance["status"] == status

        await until(is_there, within=within)
        return instance

    @asynccontextmanager
    async def subscribed(self, document: str = EVENTS, **variables: Any) -> AsyncIterator["Stream"]:
        """A subscription that has begun: what happens from now on is seen."""
        transport = WebsocketsTransport(self.url.replace("http", "ws", 1), headers=self.headers)
        async with Client(transport=transport) as session:
            stream = Stream(session.subscribe(GraphQLRequest(document, variable_values=variables)))
            try:
                # Nothing tells that a subscription has begun; but what is sent after it is answered after it.
                await session.execute(GraphQLRequest("{ __typename }"))
                yield stream
            finally:
                await stream.close()


class Stream:
    """The events of a subscription, one after the other, each with a deadline."""

    def __init__(self, answers: Any) -> None:
        self._answers = answers
        self._first = asyncio.ensure_future(anext(answers))
        self.seen: list[Event] = []

    async def next(self, *, within: float = 30.0) -> Event:
        async with asyncio.timeout(within):
            answer = await (self._first if not self.seen else anext(self._answers))
        self.seen.append(answer["instanceEvents"])
        return self.seen[-1]

    async def close(self) -> None:
        self._first.cancel()
        await asyncio.gather(self._first, return_exceptions=True)
        await self._answers.aclose()

    async def until(self, status: str, *ids: str, within: float = 60.0) -> list[Event]:
        """Read on until all of these instances have had that status, or with no ids any instance; all seen so far."""
        async with asyncio.timeout(within):
            while not self._have_had(status, set(ids)):
                await self.next(within=within)
        return self.seen

    def _have_had(self, status: str, ids: set[str]) -> bool:
        had = {str(event["instanceId"]) for event in self.seen if event["status"] == status}
        return bool(had) and ids <= had


def story_of(events: list[Event], instance_id: str) -> list[str]:
    """The statuses an instance went through, in the order in which they were seen."""
    return [event["status"] for event in events if event["status"] and event["instanceId"] == instance_id]


def positions(events: list[Event], log: list[str]) -> list[int]:
    """Where in the project's log they are."""
    place = {id: number for number, id in enumerate(log)}
    return [place[event["id"]] for event in events]
