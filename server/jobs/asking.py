"""Asking the provider to do something with a machine that exists, and knowing afterwards whether it was done.

The provider has no idempotency key here either. So every run of a handler looks at the machine first. That the provider
is about to be asked is committed before the call, with a mark of the machine's present run: whoever finds it and sees
the machine on its way, or another run of it, knows that the call was accepted and goes on from there.
"""

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

from server.clock import now
from server.db.tables import Instance, Operation
from server.errors import InvalidStateChange, NovitaError, ProviderNotFound, ProviderTimeout
from server.instances import moves, operations
from server.instances.observed import Seen, facts, seen
from server.jobs.coming_up import Rise
from server.jobs.create_instance import longest_doubt
from server.jobs.going_back import go_back
from server.jobs.handler import Reason, Tools, fail_operation, growing_pause
from server.jobs.provider_wait import later
from server.novita.wire import RemoteInstance
from server.queue.enqueue import enqueue
from server.queue.kinds import MonitorStartup
from server.queue.outcome import Again, Done, Outcome
from server.words import OperationPhase

# How long a change may take to be seen after the provider has answered. It also answers "invalid state change" to calls
# that it has accepted, so such an answer is only believed when nothing was seen for this long.
SETTLES_WITHIN = timedelta(seconds=10)
LONGEST_PAUSE = timedelta(seconds=10)

# These say nothing about what was asked, only that it could not be asked now.
PASSING = frozenset({"RATE_LIMITED", "CIRCUIT_OPEN", "NETWORK_ERROR", "PROVIDER_ERROR"})


@dataclass(frozen=True, slots=True)
class Standing:
    """What is true before this run does anything."""

    instance: Instance
    operation: Operation

    @property
    def novita_id(self) -> str:
        return str(self.instance.novita_id)

    @property
    def cause(self) -> moves.Cause:
        return moves.Cause(self.operation.id, self.operation.requested_by)


async def take_up(work: Rise, tools: Tools, phase: OperationPhase) -> Standing | None:
    """None when there is nothing to do any more: it is over, or an earlier run got further before it was killed."""
    async with tools.write() as session:
        operation = await operations.enter(session, work.operation_id, phase)
        if operation is None or operation.phase != phase:
            return None
        return Standing(await moves.locked(session, work.instance_id), operation)


def run_of(remote: RemoteInstance) -> str:
    """Another one whenever the machine was started, was stopped, or broke."""
    told = (remote.last_started_at, remote.last_stopped_at, remote.ssh and remote.ssh.command, remote.status_error)
    return hashlib.sha256(repr(told).encode()).hexdigest()[:16]


def is_another_run(operation: Operation, remote: RemoteInstance) -> bool:
    """Whether something became of the machine since the provider was asked."""
    run = operation.before.get("run")
    return run is not None and run != run_of(remote)


async def ask(
    standing: Standing, remote: RemoteInstance, call: Callable[[str], Awaitable[object]], tools: Tools
) -> bool:
    """Ask the provider. False when the operation was cancelled or superseded before we could."""
    operation_id = standing.operation.id
    async with tools.write() as session:
        if await operations.ask(session, operation_id, run=run_of(remote)) is None:
            return False
    try:
        await call(standing.novita_id)
    except InvalidStateChange as error:
        async with tools.write() as session:
            await operations.note_answer(session, operation_id, error.message)
        raise
    except NovitaError as error:
        if error.is_certain_refusal:
            async with tools.write() as session:
                await operations.unask(session, operation_id)
        raise
    return True


async def in_doubt(
    standing: Standing, remote: RemoteInstance, work: Rise, tools: Tools, *, is_repeatable: bool
) -> Outcome | None:
    """What to do while the provider was asked and nothing is to be seen of it; None when it may be asked again.

    What may be asked twice is asked again after a moment; what may not, only once the first call can't be on its way
    any more.
    """
    asked_at, answer = standing.operation.asked_at, standing.operation.before.get("answer")
    if asked_at is None:
        return None
    waited = now() - asked_at
    patience = SETTLES_WITHIN if answer or is_repeatable else longest_doubt(tools)
    if waited < patience:
        return Again(after=growing_pause(waited, longest=LONGEST_PAUSE))
    if answer:
        return await refuse(work, tools, Reason(InvalidStateChange.code, answer, retryable=True), found=seen(remote))
    if now() - standing.operation.created_at > tools.settings.provider_max_wait:
        reason = Reason(ProviderTimeout.code, "The provider gave no clear answer, and nothing came of it.", True)
        return await refuse(work, tools, reason, found=seen(remote))
    return None


async def follow(work: Rise, standing: Standing, tools: Tools) -> Outcome:
    """It was accepted: from here on the machine is followed until it runs."""
    async with tools.write() as session:
        if await operations.enter(session, work.operation_id, OperationPhase.PROVISIONING) is None:
            return Done()
        await enqueue(
            session,
            MonitorStartup(instance_id=work.instance_id, operation_id=work.operation_id),
            project_id=standing.instance.project_id,
            instance_id=work.instance_id,
            unique_key=f"monitor {work.operation_id}",
        )
    return Done()


async def wait(work: Rise, standing: Standing, remote: RemoteInstance, tools: Tools) -> Outcome:
    """It is in a state in which it can't be asked, or on its way to where it should be: look again, not for ever."""
    waited = now() - standing.operation.created_at
    if waited > tools.settings.provider_max_wait:
        message = f"It was still {remote.status} at the provider after {waited.total_seconds():.0f} s."
        return await refuse(work, tools, Reason("PROVIDER_BUSY", message, retryable=True), found=seen(remote))
    async with tools.write() as session:
        if await operations.still_open(session, work.operation_id) is None:
            return Done()
        await moves.note(session, work.instance_id, cause=standing.cause, observed_at=now(), **facts(remote))
    return Again(after=growing_pause(waited, longest=LONGEST_PAUSE))


async def trouble(error: NovitaError, work: Rise, standing: Standing, tools: Tools) -> Outcome:
    """The provider was asked or looked at, and answered with an error."""
    if isinstance(error, ProviderNotFound):
        return await gone(work, tools)
    if isinstance(error, InvalidStateChange):
        return Again(after=growing_pause(timedelta(0), longest=LONGEST_PAUSE))  # look before believing it
    if error.code in PASSING:
        return later(error, since=standing.operation.created_at, tools=tools)
    return await refuse(work, tools, Reason(error.code, error.message, error.retryable), found=None)


async def gone(work: Rise, tools: Tools) -> Outcome:
    async with tools.write() as session:
        reason = Reason("GONE_AT_PROVIDER", "The provider no longer has it.", retryable=False)
        await fail_operation(session, work.instance_id, work.operation_id, reason)
    return Done()


async def refuse(work: Rise, tools: Tools, reason: Reason, *, found: Seen | None) -> Outcome:
    """The operation has failed, and the instance goes back to what is true of it."""
    async with tools.write() as session:
        await go_back(session, work.instance_id, work.operation_id, reason, found=found)
    return Done()
