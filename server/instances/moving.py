"""Which instances change by themselves, and for how long a look at one is believed."""

from datetime import timedelta

from server.words import InstanceStatus

S = InstanceStatus

# What was seen of these a while ago may not be true any more.
MOVING = frozenset({S.STARTING, S.RUNNING, S.HEALTH_CHECKING, S.STOPPING, S.RESTARTING, S.MIGRATING, S.DELETING})
# A moving instance that was seen this recently need not be looked at for a reader.
FRESH_FOR = timedelta(seconds=30)
