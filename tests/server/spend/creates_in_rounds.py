"""An API's part in the races for a budget: a process that accepts creates when it is told to, and may be killed."""

import asyncio
import sys
from datetime import timedelta
from uuid import UUID

from server.auth.caller import Caller
from server.clock import new_id, now
from server.db.database import Database
from server.enums import Role
from server.errors import BudgetExceeded
from server.idempotency import IdempotentRequest
from server.instances.commands.create_rows import CreateBatcher
from server.spend.admission import Want

PRICE_E5 = 36_000
SECONDS = timedelta(hours=1).total_seconds()


async def main(url: str) -> None:
    """Reads lines `project token number`, makes so many creates at once, and prints how many were accepted."""
    creates = CreateBatcher(Database(url))
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        project_id, token_id, number = line.split()
        by = Caller(UUID(project_id), UUID(token_id), Role.OPERATOR)
        outcomes = await asyncio.gather(*(_create(creates, by) for _ in range(int(number))))
        sys.stdout.write(f"{sum(outcomes)}\n")
        sys.stdout.flush()


async def _create(creates: CreateBatcher, by: Caller) -> bool:
    name = f"one-{new_id().hex}"
    fields = {
        "id": new_id(),
        "project_id": by.project_id,
        "name": name,
        "product_name": "RTX",
        "gpu_count": 1,
        "rootfs_size_gb": 60,
        "billing": "SPOT",
        "image": "nginx",
        "estimated_ready_at": now(),
    }
    found = await creates.find_conflicts(project_id=by.project_id, name=name, key=None)
    want = Want(by.project_id, by.token_id, {}, PRICE_E5, SECONDS, 1)
    request = IdempotentRequest(by, None, b"")
    try:
        await creates.insert(fields, request, want=want, is_guarded=found.has_budget)
    except BudgetExceeded:
        return False
    return True


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
