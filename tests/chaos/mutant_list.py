"""The defects that `make chaos-mutants` plants: what is replaced by what, and what must catch it.

Keep `old` small and likely to stay: it is looked for in the whole product and must be there exactly once.
"""

from dataclasses import dataclass

QUEUE = "tests/server/queue"
JOBS = "tests/server/jobs"


@dataclass(frozen=True, slots=True)
class Mutant:
    """A defect. Caught by `test` if there is one, else by a violation of one of `invariants` in the short chaos run."""

    name: str
    old: str
    new: str
    test: str = ""
    invariants: tuple[int, ...] = ()

    @property
    def catcher(self) -> str:
        return self.test or "chaos, invariant " + " or ".join(map(str, self.invariants))


MUTANTS = (
    Mutant(
        "writes are not fenced by the claim",
        "            if held.first() is None:",
        "            if held.first() is None and self.token is None:",
        test=f"{QUEUE}/test_claim.py::test_a_worker_that_lost_its_claim_changes_nothing",
    ),
    Mutant(
        "an outcome ends a job that another worker has",
        "WHERE id = ANY($1::bigint[]) AND claim = ($2::bigint[])[width_bucket(id, $1::bigint[])]",
        "WHERE id = ANY($1::bigint[]) AND ($2::bigint[])[1] IS NOT NULL",
        test=f"{QUEUE}/test_claim.py::test_late_outcome_does_not_end_a_job_that_another_worker_holds",
    ),
    Mutant(
        "the lease of a live worker is taken for over",
        "SELECT id FROM job_worker WHERE lease_until <= clock_timestamp() FOR UPDATE SKIP LOCKED",
        "SELECT id FROM job_worker WHERE lease_until <= clock_timestamp() + interval '1 h' FOR UPDATE SKIP LOCKED",
        test=f"{QUEUE}/test_claim.py::test_rescue_leaves_jobs_of_live_workers_alone",
    ),
    Mutant(
        "the lease is not checked before a job starts",
        " if self._is_lease_held() else ENDED\n",
        " if True else ENDED\n",
        test=f"{QUEUE}/test_claim.py::test_claimed_job_is_not_started_once_the_lease_is_over",
    ),
    Mutant(
        "a job that should run again is lost",
        "            case Again(after):\n",
        "            case Again() if job.id % 3 == 0:\n"
        "                return FINISHED\n"
        "            case Again(after):\n",
        invariants=(2,),
    ),
    Mutant(
        "an outage of the database uses up attempts",
        "        if is_database_outage(error):",
        "        if is_database_outage(error) and attempts < 0:",
        test=f"{QUEUE}/test_no_room.py::test_a_server_without_room_costs_a_job_no_attempt",
    ),
    Mutant(
        "a lost answer to a create is taken for a refusal",
        "    code = error.reason or error.code\n    if not error.is_certain_refusal:",
        "    code = error.reason or error.code\n    if not error.is_certain_refusal and attempt.marker is None:",
        invariants=(1,),
    ),
    Mutant(
        "a create in doubt is sent again at once",
        "    timeout = unresolved_timeout(ctx)\n",
        "    timeout = unresolved_timeout(ctx) * 0\n",
        test=f"{JOBS}/test_create_instance.py::test_nothing_is_created_again_before_the_grace_is_over",
    ),
    Mutant(
        "a call that may still arrive is sent again",
        " else unresolved_timeout(ctx)\n",
        " else SETTLE_TIMEOUT\n",
        test=f"{JOBS}/test_provider_call_errors.py::test_unrepeatable_call_that_may_still_arrive_is_not_sent_again",
    ),
    Mutant(
        "a failed create makes another machine when it is tried again",
        "    return not has_machine(instance) or",
        "    return has_machine(instance) or",
        test="tests/server/instances/commands/test_retry.py"
        "::test_a_create_whose_machine_failed_to_start_starts_that_machine",
    ),
    Mutant(
        "the process's own clock is used",
        "        if self._offset is None:\n            return datetime.now(UTC)\n",
        "        if self._offset is not object():\n            return datetime.now(UTC)\n",
        test=f"{JOBS}/test_wrong_clock.py::test_worker_with_a_wrong_clock_fails_no_create",
    ),
    Mutant(
        "a delete forgets the create in the air",
        "        if live is not None:\n            return await _resolve_attempt(",
        "        if live is not None and work.kind == '':\n            return await _resolve_attempt(",
        test=f"{JOBS}/test_delete_instance.py::test_machine_with_a_lost_create_response_is_found_and_deleted",
    ),
    Mutant(
        "a delete succeeds before the machine is gone",
        "        await ctx.novita.delete_instance(novita_id, is_repeatable=False, before_sending=renew_intent)\n",
        "        await ctx.novita.delete_instance(novita_id, is_repeatable=False, before_sending=renew_intent)\n"
        "        return True\n",
        test=f"{JOBS}/test_delete_instance.py::test_delete_ends_once_the_machine_is_gone_at_the_provider",
    ),
    Mutant(
        "a create in doubt is settled by no job",
        'at most one per attempt waits."""\n',
        'at most one per attempt waits."""\n    return\n',
        test=f"{JOBS}/test_settle_attempt.py::test_a_machine_whose_create_ended_is_visible_and_then_adopted_by_its_row",
    ),
    Mutant(
        "a disk grows twice",
        "            await ctx.novita.edit_instance(novita_id, ports=ports, expand_rootfs_gb=growth)\n",
        "            await ctx.novita.edit_instance(novita_id, ports=ports, expand_rootfs_gb=growth)\n"
        "            await ctx.novita.edit_instance(novita_id, ports=ports, expand_rootfs_gb=growth)\n",
        test=f"{JOBS}/test_provider_call.py::test_new_ports_and_a_larger_disk_are_requested_from_the_provider",
    ),
    Mutant(
        "an operation fails during a short outage",
        "    waited = now() - since\n    is_too_long = waited > ",
        "    waited = now() - since\n    is_too_long = waited * 3600 > ",
        invariants=(14,),
    ),
    Mutant(
        "an event is not written",
        "    await outbox.insert_row(session, rows.event)\n",
        '    if rows.event["type"] != "instance.running":\n        await outbox.insert_row(session, rows.event)\n',
        invariants=(3,),
    ),
    Mutant(
        "events are numbered in the wrong order",
        "row_number() OVER (ORDER BY seq)",
        "row_number() OVER (ORDER BY seq DESC)",
        invariants=(3,),
    ),
    Mutant(
        "a cursor skips one event",
        "        self._through = start.position\n",
        "        self._through = start.position + 1\n",
        invariants=(3,),
    ),
    Mutant(
        "a change does not raise the version",
        ".values(**values, version=Instance.version + 1, updated_at=now())",
        ".values(**values, updated_at=now())",
        test="tests/server/instances/test_transitions.py"
        "::test_a_transition_increments_the_version_and_writes_an_event_with_a_snapshot",
    ),
    Mutant(
        "a webhook is not written",
        "    if rows.delivery is not None:\n",
        '    if rows.delivery is not None and rows.event["type"] != "instance.ready":\n',
        invariants=(7,),
    ),
    Mutant(
        "webhooks overtake each other",
        "    if left is not None:\n        return Again(",
        "    if left is not None and delivery.attempts < 0:\n        return Again(",
        invariants=(7,),
    ),
    Mutant(
        "a webhook without an answer counts as delivered",
        "    if result.is_delivered:\n",
        "    if result.is_delivered or result.http_status is None:\n",
        test=f"{JOBS}/test_send_webhook.py::test_missing_response_is_an_attempt_with_its_reason",
    ),
    Mutant(
        "webhooks are signed over another text",
        'signed = f"{message_id}.{timestamp}.{body}".encode()',
        'signed = f"{timestamp}.{message_id}.{body}".encode()',
        invariants=(7,),
    ),
    Mutant(
        "an outage of the database is answered INTERNAL",
        "    elif is_database_unavailable(original):\n",
        "    elif is_database_unavailable(original) and request_id == '':\n",
        invariants=(8,),
    ),
    Mutant(
        "the key of a create is ignored",
        '    return IdempotentRequest.of(by, draft.idempotency_key, "createInstance", fields)\n',
        '    return IdempotentRequest(by, None, b"")\n',
        invariants=(6,),
    ),
    Mutant(
        "a page of any origin may open a socket",
        "def is_allowed_origin(origin: str | None, host: str | None, allowed_origins: tuple[str, ...]) -> bool:\n"
        '    """Our own pages, pages of allowed origins, and requests without an Origin."""\n',
        "def is_allowed_origin(origin: str | None, host: str | None, allowed_origins: tuple[str, ...]) -> bool:\n"
        "    return True\n",
        invariants=(10,),
    ),
    Mutant(
        "subscribers get no farewell",
        "GOING_AWAY, TRY_AGAIN_LATER = 1012, 1013",
        "GOING_AWAY, TRY_AGAIN_LATER = 1000, 1013",
        invariants=(12,),
    ),
    Mutant(
        "a commit notifies no other process",
        "    session.info.setdefault(TOPICS, set()).add(topic)\n",
        "    session.info.setdefault(TOPICS, set())\n",
        test="tests/server/db/test_notify.py::test_a_commit_wakes_other_processes",
    ),
    Mutant(
        "an end trusts the process's clock",
        "    return (await session.execute(DATABASE_TIME)).scalar_one()\n",
        "    import server.clock\n\n    return server.clock.datetime.now(server.clock.UTC)\n",
        test="tests/server/lifetimes/test_invariants.py::test_no_end_is_early_or_late_with_a_wrong_clock",
    ),
    Mutant(
        "the lost job of a lifetime is not made again",
        "        missing += await _repair(database, instance_id)\n",
        "        missing += 0 * len(str(instance_id))\n",
        test="tests/server/lifetimes/test_invariants.py::test_reconcile_counts_and_makes_missing_jobs",
    ),
    Mutant(
        "a lifetime ends when its end is announced",
        "    elif step.at > moment:\n",
        "    elif step.at > moment + WAIT_FOR_OPERATION:\n",
        invariants=(16,),
    ),
    Mutant(
        "a lifetime ends a minute late",
        "    yield step.at\n",
        "    yield step.at + timedelta(minutes=1)\n",
        invariants=(16,),
    ),
    Mutant(
        "a machine that was replaced is forgotten",
        "else retire(session, row, before))",
        "else _end(session, row.id, before.novita_id, REPLACED))",
        invariants=(17,),
    ),
    Mutant(
        "a run ends in the ledger when its end is seen",
        "await end_machine(session, row.id, before.machine, at=times.stopped_at)",
        "await end_machine(session, row.id, before.machine, at=None)",
        invariants=(18,),
    ),
    Mutant(
        "a stopped machine stays in the burn rate",
        "    if after.is_paid is False:\n        if is_same",
        "    if after.is_paid is False:\n        if row.novita_status == 'exited':\n            return False\n"
        "        if is_same",
        invariants=(19,),
    ),
)
