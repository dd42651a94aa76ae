"""Every view in both themes, wide and narrow."""

import json
from typing import Any

import aiohttp
import pytest

from tests.support.processes import Up
from tests.web.browser import CHROMIUM, run_node
from tests.web.seed import seed


@pytest.mark.timeout(400)
async def test_every_view_is_well_in_both_themes_wide_and_narrow(running: Up):
    if CHROMIUM is None:
        pytest.skip("no chromium: apt-get install chromium, or say where with CHROMIUM")
    base = running.graphql_url.removesuffix("/graphql")
    seeded = await seed(running)

    said = await run_node(
        "e2e/tour.mjs", base, "--ready", seeded.ready, "--failed", seeded.failed, "--died", seeded.died
    )

    report: dict[str, Any] = json.loads(said)
    assert len(report["visited"]) == 96
    assert report["problems"] == []
    assert report["otherHosts"] == []
    assert report["overflowing"] == []
    assert [each for each in report["axe"] if each["impact"] in ("serious", "critical")] == []


async def test_everything_that_the_page_loads_is_small_and_kept_for_ever(running: Up):
    base = running.graphql_url.removesuffix("/graphql")
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        async with session.get(f"{base}/") as response:
            page = await response.text()
            assert response.headers["cache-control"] == "no-store"
        names = {part.split('"')[0] for part in page.split('="/')[1:] if part.startswith("assets/")}
        total = len(page)
        for name in names:
            async with session.get(f"{base}/{name}", headers={"accept-encoding": "gzip"}) as response:
                assert response.status == 200
                assert response.headers["content-encoding"] == "gzip"
                assert response.headers["cache-control"] == "public, max-age=31536000, immutable"
                total += len(await response.read())
    assert len(names) == 5  # two of them are shared with views that are loaded later
    assert total < 60 * 1024
