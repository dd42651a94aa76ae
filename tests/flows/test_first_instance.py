"""One instance as a client sees it: every status once, in order, and resumable at each event."""

from tests.support.processes import Up
from tests.support.watcher import STORY, GraphQLClient, positions, story_of


async def test_a_client_sees_every_status_in_order_and_can_resume_at_each_event(shared_up: Up):
    caller = GraphQLClient(shared_up.graphql_url, shared_up.token)
    async with caller.subscribed() as events:
        id = await caller.create("first-story")
        seen = [event for event in await events.until("READY", id) if event["instanceId"] == id]

    assert story_of(seen, id) == STORY
    places = positions(seen, await caller.log())
    assert places == sorted(set(places))
    assert (await caller.instance(id))["openOperation"] is None
    for number, event in enumerate(seen[:-1], start=1):
        async with caller.subscribed(after=event["cursor"], filter={"ids": [id]}) as rest:
            assert await rest.until("READY", id) == seen[number:]
