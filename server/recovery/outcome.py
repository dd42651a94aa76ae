"""What an instance is again when a start has come to nothing."""

from typing import Any

from server.db.tables import Instance, Operation
from server.enums import InstanceStatus
from server.instances.provider.absence import GONE_AT_PROVIDER
from server.instances.status import has_machine

S = InstanceStatus


def back_to(operation: Operation, instance: Instance, code: str, message: str) -> tuple[InstanceStatus, dict[str, Any]]:
    """Its status, with the columns that say why.

    One that had failed is FAILED for the reason that it had: a machine that is known to be gone stays known to be.
    """
    before = operation.before
    if before.get("status") == S.FAILED and before.get("failure_code") is not None:
        return S.FAILED, {"failure_code": before["failure_code"], "failure_message": before.get("failure_message")}
    if has_machine(instance):
        return S.EXITED, {"status_reason": code}
    return S.FAILED, {
        "failure_code": code if instance.novita_id is None else GONE_AT_PROVIDER,
        "failure_message": message,
    }
