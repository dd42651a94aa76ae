"""Pictures of every view, of a throw-away server: python -m tests.web.shots [--docs].

With --docs those that the documentation shows are put there, too; all are then as high as a window.
"""

import asyncio
import json
import shutil
import sys
import tempfile
from pathlib import Path

from tests.support.processes import up
from tests.web.browser import WEB, run_node
from tests.web.seed import seed

DOCS = WEB.parent / "docs" / "images"
SHOWN = {"fleet.png": "fleet-1280-dark.png", "instance.png": "instance-failed-1280-light.png"}


async def main() -> None:
    folder = WEB / "shots"
    with tempfile.TemporaryDirectory(prefix="pilotlight-home-", ignore_cleanup_errors=True) as home:
        async with up(Path(home)) as running:
            base = running.graphql_url.removesuffix("/graphql")
            seeded = await seed(running)
            given = ("--ready", seeded.ready, "--failed", seeded.failed, "--died", seeded.died, "--shots", str(folder))
            if "--docs" in sys.argv:
                given += ("--height", "860")
            report = json.loads(await run_node("e2e/tour.mjs", base, *given))
    sys.stdout.write(f"{len(report['visited'])} pictures in {folder}\n")
    if "--docs" in sys.argv:
        for name, source in SHOWN.items():
            shutil.copyfile(folder / source, DOCS / name)
    for found in (*report["problems"], *report["overflowing"], *report["axe"]):
        sys.stdout.write(f"{found}\n")


if __name__ == "__main__":
    asyncio.run(main())
