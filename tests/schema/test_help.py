"""Errors say what the caller can do."""

from server.enums import InstanceStatus
from server.error_codes import help_of
from server.simulator.faults import Fault, FaultKind
from tests.support.api import Api
from tests.support.world import CREATE

FAILED = """
    query ($id: ID!) {
      instance(id: $id) {
        failure { code help }
        operations(first: 1) { error { code retryable help } }
      }
    }
"""


async def test_refusal_says_what_to_do(api: Api):
    document = """
        mutation ($input: CreateInstanceInput!) { createInstance(input: $input) { errors { code help } } }
    """
    refused = await api.ask(
        document, input={"name": "x", "productName": "RTX 4090 24GB", "image": "nginx", "gpuCount": 9}
    )

    assert refused.data["createInstance"]["errors"] == [
        {"code": "INVALID_GPU_COUNT", "help": help_of("INVALID_GPU_COUNT")}
    ]
    assert help_of("INVALID_GPU_COUNT") is not None


async def test_failed_operation_and_instance_say_what_to_do(api: Api):
    created = await api.create(name="no-image")
    api.world.faults(Fault(FaultKind.ERROR, (CREATE,), status=400, reason="IMAGE_NOT_FOUND", message="image not found"))
    row = await api.world.one("SELECT id FROM instance WHERE name = 'no-image'")
    await api.world.work_until_status(row["id"], InstanceStatus.FAILED)

    failed = (await api.ask(FAILED, id=created["instance"]["id"])).data["instance"]

    help = "Check the image's name and tag; a private image needs registryAuthId."
    assert failed["failure"] == {"code": "IMAGE_NOT_FOUND", "help": help}
    (operation,) = failed["operations"]
    assert operation["error"] == {"code": "IMAGE_NOT_FOUND", "retryable": False, "help": help}
