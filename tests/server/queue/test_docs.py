"""The examples of docs/jobs.md are executed: the kind, the handler and the tests."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from server.jobs import registry
from server.queue import kinds, work
from server.queue.enqueue import BURST_MAX, DELAY_MAX, JOBS_PER_SECOND, PRIORITY_DELAY
from server.queue.runner import LOSSES_MAX
from tests.support.world import World
from tests.support.world import world as whole_world

__all__ = ["whole_world"]

PAGE = Path(__file__).parents[3] / "docs" / "jobs.md"


@pytest.fixture
def page() -> Iterator[ModuleType]:
    """All Python on the page, as one module."""
    module = ModuleType("page_about_jobs")
    sys.modules[module.__name__] = module
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 3
    exec(compile("\n".join(blocks), str(PAGE), "exec"), module.__dict__)
    yield module
    del sys.modules[module.__name__]
    del registry._registered[module.LabelInstance]
    del work._by_kind["LABEL_INSTANCE"]


async def test_the_example_of_a_new_kind_passes_its_own_tests(page: ModuleType, whole_world: World):
    tests = [value for name, value in vars(page).items() if name.startswith("test_")]
    assert len(tests) == 2

    for test in tests:
        await whole_world.configure()  # the handlers of the page are found like all others
        await whole_world.execute("DELETE FROM job_history")
        await test(whole_world)


def test_the_figures_on_the_page_are_those_of_the_code():
    text = PAGE.read_text()
    seconds = [int(PRIORITY_DELAY[priority].total_seconds()) for priority in kinds.Priority]
    assert seconds[0] == 0
    assert f"{seconds[1]} s (NORMAL) or {seconds[2]} s (LOW)" in text
    assert f"more than {int(BURST_MAX)} jobs at once" in text
    assert f"or {int(JOBS_PER_SECOND)} a second" in text
    assert f"by {int(DELAY_MAX.total_seconds() // 60)} minutes at most" in text
    assert f"takes down {LOSSES_MAX} workers" in text
