"""Probes READY instances at their intervals. One that stops responding is degraded, and stays READY.

One that failed its health check is probed too, and becomes READY when it responds.

A few jobs share all instances: each run claims a batch of those that are due, probes them at the same time and writes
the results together. A job for each instance would write more rows about itself than about its instance.
"""

import asyncio
import random
from dataclasses import replace
from datetime import timedelta

from server.clock import now
from server.instances import transitions
from server.instances.provider.drift import recover
from server.jobs.registry import JobContext, handles
from server.observe import metrics
from server.probes.plan import CheckPlan, default_plan, probe_targets
from server.probes.reachability import is_unreachable
from server.probes.verdict import CheckRound, Health, health_of, merge_outcomes
from server.probes.watch import (
    SPREAD,
    Finding,
    Watched,
    claim_due,
    refresh_watched,
    save_findings,
    time_to_next,
)
from server.queue.enqueue import enqueue
from server.queue.handler import Again, Done, Outcome
from server.queue.kinds import LookAtMachine, ProbeWatched, WatchHealth

# One more job for each so many instances. Jobs wait for their slowest endpoint, so many instances need several.
INSTANCES_PER_JOB = 500
JOBS_MAX = 8
# Between two runs of a job. The shortest makes batches of what becomes due; the longest bounds a changed clock.
PAUSE_MIN, PAUSE_MAX = timedelta(seconds=1), timedelta(seconds=5)
# A slower endpoint keeps a job, and its other instances, waiting.
PROBE_TIMEOUT_MAX = timedelta(seconds=30)


@handles(WatchHealth)
async def watch_health(_work: WatchHealth, ctx: JobContext) -> Outcome:
    async with ctx.write() as session:
        watched = await refresh_watched(session, default_plan(ctx.settings))
        jobs = min(JOBS_MAX, -(-watched // INSTANCES_PER_JOB))
        for number in range(jobs):
            await enqueue(session, ProbeWatched(number), unique_key=f"probe watched {number}")
    return Done()


@handles(ProbeWatched)
async def probe_watched(_work: ProbeWatched, ctx: JobContext) -> Outcome:
    database, limit = ctx.services.database, ctx.settings.health_watch_concurrency // JOBS_MAX
    batch = await claim_due(database, limit=limit)
    if batch:
        defaults = default_plan(ctx.settings)
        findings = await asyncio.gather(*(_probe(each, defaults.with_stored(each.health_check), ctx) for each in batch))
        is_network_down = ctx.services.reachability.record_round(findings)
        if is_network_down:
            findings = [_without_failure(each) if is_unreachable(each.results) else each for each in findings]
        await _save(findings, defaults, ctx)
    if len(batch) == limit:
        return Again(after=timedelta(0))
    left = await time_to_next(database)
    return Done() if left is None else Again(after=min(max(left, PAUSE_MIN), PAUSE_MAX))


async def _probe(watched: Watched, plan: CheckPlan, ctx: JobContext) -> Finding:
    metrics.WATCH_LATENESS.observe(watched.late.total_seconds())
    targets = tuple(probe_targets(plan, watched.ports, watched.endpoints))
    within = min(plan.interval or PROBE_TIMEOUT_MAX, PROBE_TIMEOUT_MAX)
    outcomes = await asyncio.gather(*(ctx.services.prober.probe(each, plan, within=within) for each in targets))
    results = merge_outcomes(CheckRound({}, targets), outcomes, at=now())
    is_healthy = health_of(results) is Health.HEALTHY
    return Finding(
        watched,
        results,
        failures=0 if is_healthy else watched.failures + 1,
        successes=watched.successes + 1 if is_healthy else 0,
        next_after=plan.interval * random.uniform(1 - SPREAD, 1 + SPREAD),
    )


def _without_failure(finding: Finding) -> Finding:
    """A probe that says nothing about the instance counts neither way."""
    return replace(finding, failures=finding.watched.failures, successes=finding.watched.successes)


async def _save(findings: list[Finding], defaults: CheckPlan, ctx: JobContext) -> None:
    """Changes of health first, each in a transaction of its own: if this is interrupted, they are found again."""
    for each in findings:
        if each.watched.has_failed:
            await _recover(each, defaults, ctx)
            continue
        plan = defaults.with_stored(each.watched.health_check)
        is_degraded = each.watched.is_degraded
        if each.successes >= plan.success_threshold if is_degraded else each.failures >= plan.failure_threshold:
            async with ctx.write() as session:
                await transitions.record_degraded(
                    session,
                    each.watched.instance_id,
                    each.results,
                    is_degraded=not is_degraded,
                    since=each.watched.since,
                )
    async with ctx.write() as session:
        for each in findings:
            if each.failures == 1 and not each.watched.has_failed:
                # Its container may have ended. Once per series of failures: the machine of an application that is
                # merely broken need not be read each time.
                work = LookAtMachine(each.watched.instance_id)
                await enqueue(session, work, unique_key=f"look {each.watched.instance_id}")
        await save_findings(session, findings)


async def _recover(finding: Finding, defaults: CheckPlan, ctx: JobContext) -> None:
    watched = finding.watched
    if finding.successes < defaults.with_stored(watched.health_check).success_threshold:
        return
    async with ctx.write() as session:
        await recover(session, watched.instance_id, finding.results, since=watched.since, cause=transitions.Cause())
