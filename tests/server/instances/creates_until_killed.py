"""A process that accepts creates, many at once, and says of each that it was accepted; until it is killed."""

import asyncio
import sys
from uuid import UUID

from server.auth.caller import Caller
from server.clock import new_id, now
from server.db.engine import Database
from server.db.tables import Instance
from server.instances.acceptance import accept, row_of
from server.instances.idempotency import Asked
from server.words import Role


async def main(url: str, project_id: UUID, token_id: UUID) -> None:
    database = Database(url)
    by = Caller(project_id, token_id, Role.OPERATOR)

    async def one_after_another(number: int) -> None:
        while True:
            name = f"one-{new_id().hex}"
            instance = row_of(
                Instance,
                id=new_id(),
                project_id=project_id,
                name=name,
                product_name="RTX",
                gpu_count=1,
                rootfs_size_gb=60,
                billing="SPOT",
                image="nginx",
                regions=[],
                env={},
                ports=[],
                labels={},
                health_check={},
                endpoints=[],
                estimated_ready_at=now(),
                webhook_url="https://receiver.example/hook" if number % 2 else None,
            )
            await accept(database, instance, Asked(by, name if number % 3 else None, b"same"))
            sys.stdout.write(f"{name}\n")
            sys.stdout.flush()

    await asyncio.gather(*(one_after_another(number) for number in range(16)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], UUID(sys.argv[2]), UUID(sys.argv[3])))
