"""A machine's run, of which a later one begins when it is started, stopped or breaks."""

import hashlib

from server.db.tables import Instance, Operation
from server.instances.provider.states import MachineState, state_of
from server.jobs.registry import JobContext
from server.novita.models import RemoteInstance


def run_fingerprint(remote: RemoteInstance) -> str:
    """A value that changes whenever the machine is started, stopped or breaks."""
    values = (remote.last_started_at, remote.last_stopped_at, remote.ssh and remote.ssh.command, remote.status_error)
    return hashlib.sha256(repr(values).encode()).hexdigest()[:16]


def is_another_run(operation: Operation, remote: RemoteInstance) -> bool:
    """Whether the machine was started, stopped or broke since the intent to call was committed."""
    run = operation.before.get("run")
    return run is not None and run != run_fingerprint(remote)


def shown_running(instance: Instance, operation: Operation, ctx: JobContext) -> RemoteInstance | None:
    """The machine as a page has lately shown it, if it ran and calls are short. None: it has to be looked at, as it is
    before every call but an operation's first."""
    if "run" in operation.before or instance.missing_since is not None or instance.running_at is None:
        return None
    remote = ctx.shown_lately(str(instance.novita_id), since=instance.running_at)
    return remote if remote is not None and state_of(remote) is MachineState.UP else None
