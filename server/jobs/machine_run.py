"""A machine's run, of which a later one begins when it is started, stopped or breaks; and its end by a removal."""

import hashlib
from datetime import datetime, timedelta

from server.clock import now
from server.db.tables import Instance, Operation
from server.errors import NovitaError, ProviderError, ProviderNotFound
from server.instances.provider.states import MachineState, state_of
from server.jobs.registry import JobContext
from server.novita.models import RemoteInstance

# How long a removal waits for a look while it is not known whether the machine has ended.
LOOK_WITHIN = timedelta(minutes=2)


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


async def look_before_removal(
    novita_id: str, ctx: JobContext, *, unsure_since: datetime | None, is_accepted: bool = False
) -> RemoteInstance | None:
    """The machine, before its removal is sent; None if it can't be read and the removal does not wait for that.

    If the machine may have ended, by an earlier removal that had no response or otherwise, this raises while nothing
    tells: once the removal is accepted, nothing shows any more since when the machine is not paid for.
    """
    try:
        remote = await ctx.novita.instance(novita_id)
        if unsure_since is not None and state_of(remote) is MachineState.UNKNOWN:
            raise ProviderError(f"the word {remote.status} does not tell whether the machine has ended")
    except ProviderNotFound:
        raise
    except NovitaError:
        if is_accepted or (unsure_since is not None and now() - unsure_since < LOOK_WITHIN):
            raise
        return None
    return remote


def accepted_by(sent_at: datetime | None, ctx: JobContext) -> datetime:
    """When a call whose response was just read was accepted, at the latest: this process may have been frozen since."""
    return now() if sent_at is None else min(now(), sent_at + ctx.settings.request_timeout)
