"""The job queue as operators see it."""

from typing import Any

from sqlalchemy import text

from schema import ids
from server.clock import new_id
from server.enums import Role
from server.instances import operations
from server.queue.enqueue import enqueue
from server.queue.kinds import CleanUp, DeleteInstance
from tests.support.api import Api

JOB = "{ id kind status priority instanceId attempts errorCode cancelRequested finishedAt }"
ERRORS = "errors { __typename code path }"


async def a_job(api: Api, *, failed: bool = False, project: Any = None) -> str:
    """A waiting or failed job of the caller's project, of a kind that nothing else in these tests makes."""
    project_id = project or api.caller.project_id
    async with api.world.database.write() as session:
        work = DeleteInstance(instance_id=new_id(), operation_id=new_id())
        job_id = await enqueue(session, work, project_id=project_id)
        if failed:
            await session.execute(
                text("""
                    WITH gone AS (DELETE FROM job WHERE id = :id RETURNING *)
                    INSERT INTO job_history (id, kind, args, priority, project_id, instance_id, run_at, attempts,
                                             error_code, error_message, created_at, status, finished_at)
                    SELECT id, kind, args, priority, project_id, instance_id, run_at, 3, 'NETWORK_ERROR', 'cut',
                           created_at, 'FAILED', now() FROM gone
                """),
                {"id": job_id},
            )
    return ids.format_job(api.server.runtime.seals, job_id)


async def test_a_job_is_shown_with_what_happened_to_it(api: Api):
    waiting, failed = await a_job(api), await a_job(api, failed=True)

    page = (
        await api.ask(f"{{ jobs {{ nodes {JOB} edges {{ cursor }} pageInfo {{ hasNextPage endCursor }} }} }}")
    ).data["jobs"]

    assert [(job["id"], job["status"]) for job in page["nodes"]] == [(failed, "FAILED"), (waiting, "WAITING")]
    assert page["pageInfo"] == {"hasNextPage": False, "endCursor": page["edges"][-1]["cursor"]}
    assert page["nodes"][0]["errorCode"] == "NETWORK_ERROR"
    one = (await api.ask(f'{{ job(id: "{waiting}") {JOB} }}')).data["job"]
    assert (one["kind"], one["priority"], one["attempts"]) == ("DELETE_INSTANCE", "NORMAL", 0)


async def test_pages_of_jobs_go_on_behind_the_last_one(api: Api):
    made = [await a_job(api) for _ in range(5)]
    seen: list[str] = []
    after = None
    while True:
        document = """query ($after: String) { jobs(first: 2, after: $after) {
            nodes { id } pageInfo { hasNextPage endCursor } } }"""
        page = (await api.ask(document, after=after)).data["jobs"]
        seen += [job["id"] for job in page["nodes"]]
        after = page["pageInfo"]["endCursor"]
        if not page["pageInfo"]["hasNextPage"]:
            break
    assert seen == made[::-1]


async def test_filters_by_kind_status_and_instance_leave_the_others_out(api: Api):
    await a_job(api)
    failed = await a_job(api, failed=True)

    for condition, found in [
        ("kind: DELETE_INSTANCE, statuses: [FAILED]", [failed]),
        ("kind: CLEANUP", []),
        ('instanceId: "nonsense"', []),
    ]:
        page = (await api.ask(f"{{ jobs(filter: {{ {condition} }}) {{ nodes {{ id }} }} }}")).data["jobs"]
        assert [job["id"] for job in page["nodes"]] == found


async def test_a_failed_job_is_run_again_and_a_waiting_one_can_not_be(api: Api):
    failed, waiting = await a_job(api, failed=True), await a_job(api)

    def retry(id: str) -> str:
        return f'mutation {{ retryJob(input: {{id: "{id}"}}) {{ job {JOB} {ERRORS} }} }}'

    payload = (await api.ask(retry(failed))).data["retryJob"]
    assert (payload["job"]["id"], payload["job"]["status"], payload["job"]["attempts"]) == (failed, "WAITING", 0)
    assert payload["errors"] == []
    refused = (await api.ask(retry(waiting))).data["retryJob"]
    assert (refused["job"], refused["errors"][0]["code"]) == (None, "JOB_NOT_RETRYABLE")


async def test_failed_jobs_are_run_again_together(api: Api):
    failed = sorted([await a_job(api, failed=True) for _ in range(3)])

    document = f"mutation {{ retryJobs(input: {{kind: DELETE_INSTANCE, limit: 2}}) {{ jobs {ERRORS} }} }}"
    first = (await api.ask(document)).data["retryJobs"]["jobs"]
    second = (await api.ask(document)).data["retryJobs"]["jobs"]

    assert (len(first), len(second), sorted(first + second)) == (2, 1, failed)
    wrong = (await api.ask(f"mutation {{ retryJobs(input: {{limit: 0}}) {{ jobs {ERRORS} }} }}")).data["retryJobs"]
    assert wrong == {
        "jobs": [],
        "errors": [{"__typename": "ValidationError", "code": "INVALID_LIMIT", "path": ["input", "limit"]}],
    }


async def test_a_waiting_job_can_be_cancelled_and_a_finished_one_can_not(api: Api):
    waiting, failed = await a_job(api), await a_job(api, failed=True)

    def cancel(id: str) -> str:
        return f'mutation {{ cancelJob(input: {{id: "{id}"}}) {{ job {JOB} {ERRORS} }} }}'

    assert (await api.ask(cancel(waiting))).data["cancelJob"]["job"]["cancelRequested"] is True
    assert (await api.ask(cancel(failed))).data["cancelJob"]["errors"][0]["code"] == "JOB_NOT_CANCELLABLE"


async def test_a_job_of_an_open_operation_is_not_cancelled_and_the_refusal_names_a_remedy(api: Api):
    accepted = await api.world.create("served")
    job = ids.format_job(api.server.runtime.seals, await api.world.value("SELECT id FROM job"))

    payload = (
        await api.ask(f'mutation {{ cancelJob(input: {{id: "{job}"}}) {{ job {JOB} errors {{ code message }} }} }}')
    ).data["cancelJob"]

    operation = ids.format_id(ids.OPERATION, accepted.operation.id)
    message = f"It carries out an operation: cancelOperation {operation}."
    assert payload == {"job": None, "errors": [{"code": "JOB_SERVES_OPERATION", "message": message}]}
    assert await api.world.value("SELECT count(*) FROM job WHERE cancel_requested") == 0
    assert (await api.world.operation(accepted.operation.id))["status"] == "QUEUED"


async def test_a_failed_job_whose_operation_has_ended_is_not_retried(api: Api):
    accepted = await api.world.create("ended")
    job = ids.format_job(api.server.runtime.seals, await api.world.value("SELECT id FROM job"))
    async with api.world.database.write() as session:
        await session.execute(
            text("""
                WITH gone AS (DELETE FROM job RETURNING *)
                INSERT INTO job_history (id, kind, args, priority, project_id, instance_id, run_at, attempts,
                                         error_code, error_message, created_at, status, finished_at)
                SELECT id, kind, args, priority, project_id, instance_id, run_at, 3, 'INTERNAL_ERROR', 'cut',
                       created_at, 'FAILED', now() FROM gone
            """)
        )
        await operations.fail(session, accepted.operation.id, code="INTERNAL_ERROR", message="cut", retryable=True)

    retry = f'mutation {{ retryJob(input: {{id: "{job}"}}) {{ job {JOB} errors {{ code message }} }} }}'
    one = (await api.ask(retry)).data["retryJob"]
    many = (await api.ask(f"mutation {{ retryJobs(input: {{}}) {{ jobs {ERRORS} }} }}")).data["retryJobs"]

    assert (one["job"], one["errors"][0]["code"]) == (None, "OPERATION_HAS_ENDED")
    operation = ids.format_id(ids.OPERATION, accepted.operation.id)
    assert one["errors"][0]["message"] == f"Its operation has ended: FAILED. Use retryOperation with {operation}."
    assert many["jobs"] == []
    assert await api.world.value("SELECT count(*) FROM job") == 0


async def test_a_kind_is_held_back_and_let_go_by_admins_only(api: Api):
    def change(mutation: str, kind: str = "CLEANUP") -> str:
        fields = f"{{ changed stats {{ kinds {{ kind pausedAt }} }} {ERRORS} }}"
        return f"mutation {{ {mutation}(input: {{kind: {kind}}}) {fields} }}"

    admin, _ = await api.world.new_token(role=Role.ADMIN)
    paused = (await api.ask(change("pauseJobs"), token=admin)).data["pauseJobs"]
    assert paused["changed"] is True
    assert [kind["kind"] for kind in paused["stats"]["kinds"] if kind["pausedAt"]] == ["CLEANUP"]
    assert (await api.ask(change("pauseJobs"), token=admin)).data["pauseJobs"]["changed"] is False
    assert (await api.ask(change("resumeJobs"), token=admin)).data["resumeJobs"]["changed"] is True
    unknown = (await api.ask(change("pauseJobs", "OTHER"), token=admin)).data["pauseJobs"]
    assert unknown["errors"][0]["code"] == "INVALID_JOB_KIND"

    operator, _ = await api.world.new_token(role=Role.OPERATOR)
    refused = await api.ask(change("pauseJobs"), token=operator)
    assert refused.error["code"] == "FORBIDDEN"


async def test_another_projects_jobs_are_neither_shown_nor_counted_nor_changed(api: Api):
    _, stranger = await api.world.new_token(project="elsewhere")
    theirs = await a_job(api, failed=True, project=stranger.project_id)
    operator, _ = await api.world.new_token(role=Role.OPERATOR, project="here")

    assert (await api.ask(f'{{ job(id: "{theirs}") {{ id }} }}', token=operator)).data == {"job": None}
    assert (await api.ask("{ jobs { nodes { id } } }", token=operator)).data["jobs"]["nodes"] == []
    assert (await api.ask("{ jobStats { kinds { kind } } }", token=operator)).data["jobStats"]["kinds"] == []
    for mutation in ("retryJob", "cancelJob"):
        document = f'mutation {{ {mutation}(input: {{id: "{theirs}"}}) {{ {ERRORS} }} }}'
        payload = (await api.ask(document, token=operator)).data[mutation]
        assert payload["errors"] == [{"__typename": "NotFoundError", "code": "JOB_NOT_FOUND", "path": ["input", "id"]}]
    many = await api.ask(f"mutation {{ retryJobs(input: {{}}) {{ jobs {ERRORS} }} }}", token=operator)
    assert many.data["retryJobs"]["jobs"] == []


async def test_prometheus_exports_the_waiting_jobs(api: Api):
    async with api.world.database.write() as session:
        await enqueue(session, CleanUp())
    url = f"http://{api.server.address}/metrics"

    async with api.server.http.get(url) as answer:
        lines = (await answer.text()).splitlines()

    assert answer.status == 200
    assert 'pilotlight_jobs_waiting{kind="CLEANUP"} 1.0' in lines
