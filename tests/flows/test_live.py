"""What watchers rely on, while everything around them breaks. `python -m tests.chaos.live` does it for longer."""

import pytest

from tests.chaos.live import Plan, chaos


@pytest.mark.slow
async def test_every_watchers_record_equals_the_log_while_processes_and_postgresql_are_killed():
    plan = Plan(seed=3, seconds=8, watchers=12, kill_api_every=2.5, kill_postgres_every=4.0, pause=0.05)

    report = await chaos(plan)

    told = "\n".join(report.lines())
    assert report.problems == [], told
    assert report.counts["events in the log"] > 50, told
    assert report.counts["API processes killed"] >= 2, told
    assert report.counts["PostgreSQL killed"] >= 1, told
    assert report.counts["messages received"] == 12 * report.counts["events in the log"], told
