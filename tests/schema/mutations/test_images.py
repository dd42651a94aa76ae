"""saveImage, providerJobs and cancelProviderJob, as callers of two projects see them."""

from typing import Any

from schema import ids
from server.enums import InstanceStatus, Role
from server.simulator.routes.jobs import JOB_SECONDS
from tests.server.account.test_objects import KINDS, create, delete
from tests.support.api import Api
from tests.support.lifecycle import exited

AUTH = KINDS[0]
SAVE = """mutation ($input: SaveImageInput!) { saveImage(input: $input) {
    operation { id kind action } instance { status } errors { code } } }"""
UPGRADE = "mutation ($input: UpgradeInstanceInput!) { upgradeInstance(input: $input) { errors { code } } }"
JOBS = "query ($id: ID) { providerJobs(instanceId: $id) { nodes { id kind status instance { id } } } }"
CANCEL = """mutation ($input: CancelProviderJobInput!) { cancelProviderJob(input: $input) {
    job { status } errors { code } } }"""


async def cancel(api: Api, id: str, token: str | None = None) -> dict[str, Any]:
    return (await api.ask(CANCEL, token=token, input={"id": id})).data["cancelProviderJob"]


async def test_a_job_is_seen_and_interrupted_by_its_project_only(api: Api):
    world, simulated = api.world, api.world.simulator.world
    stranger, _ = await world.new_token("strangers", Role.ADMIN)
    id = ids.format_id(ids.INSTANCE, await exited(world))
    saved = (await api.ask(SAVE, input={"id": id, "image": "r.example.test/saved:1"})).data["saveImage"]
    assert (saved["errors"], saved["operation"]["action"]) == ([], "SAVE_IMAGE")
    speed = simulated.clock.speed
    simulated.set_speed(JOB_SECONDS / 3600)  # the job takes an hour
    try:
        await world.work_once()
        (job,) = (await api.ask(JOBS, id=id)).data["providerJobs"]["nodes"]
        assert (job["kind"], job["status"], job["instance"]) == ("SAVE_IMAGE", "PULLING", {"id": id})

        assert (await api.ask(JOBS, token=stranger)).data["providerJobs"]["nodes"] == []
        assert (await cancel(api, job["id"], stranger))["errors"] == [{"code": "PROVIDER_JOB_NOT_FOUND"}]
        assert (await cancel(api, job["id"])) == {"job": {"status": "INTERRUPTED"}, "errors": []}
        assert (await cancel(api, job["id"]))["errors"] == [{"code": "PROVIDER_JOB_ENDED"}]
    finally:
        simulated.set_speed(speed)

    operation = await world.work_until_over(ids.parse(ids.OPERATION, saved["operation"]["id"]))
    assert (operation["status"], operation["error_code"]) == ("FAILED", "IMAGE_SAVE_INTERRUPTED")


async def test_a_credential_of_another_project_serves_no_saved_image_and_no_upgrade(api: Api):
    auth = (await create(api, AUTH))["registryAuth"]["id"]
    stranger, caller = await api.world.new_token("strangers", Role.ADMIN)
    for document, mutation, status in (
        (SAVE, "saveImage", InstanceStatus.EXITED),
        (UPGRADE, "upgradeInstance", InstanceStatus.READY),
    ):
        row = await api.world.put(status, name=mutation, novita_id=mutation, project_id=caller.project_id)
        wanted = {"id": ids.format_id(ids.INSTANCE, row.id), "image": "r.example.test/i:1", "registryAuthId": auth}
        refused = (await api.ask(document, token=stranger, input=wanted)).data[mutation]
        assert refused["errors"] == [{"code": "REGISTRY_AUTH_NOT_FOUND"}]
    assert await api.world.value("SELECT count(*) FROM operation") == 0
    assert await delete(api, AUTH, auth) == []
