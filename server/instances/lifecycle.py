"""The ONE table of legal moves of an instance."""

from server.words import InstanceStatus

S = InstanceStatus

# `moves.move` puts the sources of a move into the UPDATE's own WHERE, so the check and the write can't drift apart.
# READY never goes back to RUNNING: that is what a late look at the provider would otherwise write over it.
# From STOPPING, RESTARTING and MIGRATING back to RUNNING and READY: the provider refused, and the run goes on.
# From FAILED to STOPPING, RESTARTING and MIGRATING: a machine that failed its checks still runs and still costs.
MOVES: dict[InstanceStatus, frozenset[InstanceStatus]] = {
    S.CREATING: frozenset({S.STARTING, S.DELETING, S.FAILED}),
    S.STARTING: frozenset({S.RUNNING, S.EXITED, S.DELETING, S.FAILED}),
    S.RUNNING: frozenset(
        {S.HEALTH_CHECKING, S.READY, S.STOPPING, S.EXITED, S.RESTARTING, S.MIGRATING, S.DELETING, S.FAILED}
    ),
    S.HEALTH_CHECKING: frozenset({S.READY, S.STOPPING, S.EXITED, S.RESTARTING, S.MIGRATING, S.DELETING, S.FAILED}),
    S.READY: frozenset({S.STOPPING, S.EXITED, S.RESTARTING, S.MIGRATING, S.DELETING, S.FAILED}),
    S.STOPPING: frozenset({S.EXITED, S.RUNNING, S.READY, S.DELETING, S.FAILED}),
    S.EXITED: frozenset({S.STARTING, S.MIGRATING, S.DELETING, S.FAILED}),
    S.RESTARTING: frozenset({S.RUNNING, S.READY, S.EXITED, S.DELETING, S.FAILED}),
    S.MIGRATING: frozenset({S.RUNNING, S.READY, S.EXITED, S.DELETING, S.FAILED}),
    S.DELETING: frozenset({S.DELETED, S.FAILED}),
    S.FAILED: frozenset({S.RUNNING, S.EXITED, S.STOPPING, S.RESTARTING, S.MIGRATING, S.DELETING}),
    S.DELETED: frozenset(),
}

# These begin a new run, so the times of the last one are cleared.
BEGINS_A_RUN = frozenset({S.STARTING, S.RESTARTING, S.MIGRATING})


def sources(to: InstanceStatus) -> frozenset[InstanceStatus]:
    """Every status from which one may move to `to`."""
    return frozenset(source for source, targets in MOVES.items() if to in targets)
