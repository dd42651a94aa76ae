"""A worker that is killed while the provider is being asked leaves nothing twice and nothing undone."""

from pathlib import Path

from bench.killed_worker import measure
from tests.support.databases import DatabaseMaker


async def test_creates_and_deletes_in_the_air_are_finished_by_another_worker(
    new_database: DatabaseMaker, tmp_path: Path
):
    """With all times a tenth of the defaults; `make bench-killed` has the defaults."""
    result = await measure(await new_database(), tmp_path, factor=10)

    assert (result.machines_made, result.machines_left) == (4, 2)
