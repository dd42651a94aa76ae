"""Pictures of every view: python -m tests.web.shots [FOLDER]. A throw-away server is run for them."""

import asyncio
import json
import sys
import tempfile
from pathlib import Path

from tests.processes import up
from tests.web.browser import WEB, run_node
from tests.web.seed import seed


async def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else WEB / "shots").resolve()
    with tempfile.TemporaryDirectory(prefix="pilotlight-home-", ignore_cleanup_errors=True) as home:
        async with up(Path(home)) as running:
            base = running.graphql_url.removesuffix("/graphql")
            seeded = await seed(running)
            given = ("--ready", seeded.ready, "--failed", seeded.failed, "--shots", str(folder))
            report = json.loads(await run_node("e2e/tour.mjs", base, *given))
    sys.stdout.write(f"{len(report['visited'])} pictures in {folder}\n")
    for found in (*report["problems"], *report["overflowing"], *report["axe"]):
        sys.stdout.write(f"{found}\n")


if __name__ == "__main__":
    asyncio.run(main())
