"""Processes that accept creates concurrently and print each accepted one, until they are killed; one after the other.

Each begins with a line of its id. They are forked, because importing everything takes longer than what they do.
"""

import asyncio
import os
import sys
from uuid import UUID

from server.auth.caller import Caller
from server.clock import new_id, now
from server.db.database import Database
from server.enums import Role
from server.idempotency import IdempotentRequest
from server.instances.commands.create_rows import CreateBatcher


async def main(url: str, project_id: UUID, token_id: UUID) -> None:
    creates = CreateBatcher(Database(url))
    by = Caller(project_id, token_id, Role.OPERATOR)

    async def one_after_another(number: int) -> None:
        while True:
            name = f"one-{new_id().hex}"
            fields = {
                "id": new_id(),
                "project_id": project_id,
                "name": name,
                "product_name": "RTX",
                "gpu_count": 1,
                "rootfs_size_gb": 60,
                "billing": "SPOT",
                "image": "nginx",
                "estimated_ready_at": now(),
                "webhook_url": "https://receiver.example/hook" if number % 2 else None,
            }
            await creates.insert(fields, IdempotentRequest(by, name if number % 3 else None, b"same"))
            sys.stdout.write(f"{name}\n")
            sys.stdout.flush()

    await asyncio.gather(*(one_after_another(number) for number in range(16)))


if __name__ == "__main__":
    for _ in range(int(sys.argv[4])):
        child = os.fork()
        if child == 0:
            sys.stdout.write(f"\nprocess {os.getpid()}\n")
            asyncio.run(main(sys.argv[1], UUID(sys.argv[2]), UUID(sys.argv[3])))
        os.waitpid(child, 0)
