"""The documents of docs/recovery.md are executed."""

import re

from schema import ids
from server.enums import InstanceStatus
from tests.support.api import Api
from tests.support.processes import ROOT

PAGE = (ROOT / "docs/recovery.md").read_text()


async def test_documents_of_the_page_are_accepted(api: Api):
    instance = await api.world.put(
        InstanceStatus.EXITED, name="web", project_id=api.caller.project_id, novita_id="m1", region="AS-SGP-02"
    )
    start, update = re.findall(r"```graphql\n(.*?)```", PAGE, re.DOTALL)

    updated = await api.ask(update.replace("inst_...", ids.format_id(ids.INSTANCE, instance.id)))
    started = await api.ask(start)

    recovery = {"steps": ["SAME", "MIGRATE", "RELOCATE"], "giveUpAfter": 86400}
    assert updated.data["updateInstance"] == {"instance": {"recovery": recovery}, "errors": []}
    assert started.data["startInstance"]["errors"] == []
    assert await api.world.value("SELECT kind FROM operation WHERE status = 'QUEUED'") == "START"
