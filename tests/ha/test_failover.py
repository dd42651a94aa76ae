"""The primary of a real cluster dies under load and a standby takes over; `make chaos-failover` repeats it."""

import pytest

from tests.chaos.failover import Plan, chaos
from tests.ha.patroni import why_not

MISSING = why_not()


@pytest.mark.slow
@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
async def test_no_accepted_create_and_no_event_is_lost_when_the_primary_dies():
    report = await chaos(
        Plan(failovers=1, kinds=("machine dies",), nodes=2, pairs=1, comes_back=False, callers=2, subscribers=3)
    )

    assert report.is_well, "\n".join(report.lines())
    assert report.counts["failovers: another server promoted"] == 1
    assert report.counts["creates accepted"] > 0
