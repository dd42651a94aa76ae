"""The line in which a request, its operation and its instance meet; jobs go on with the latter two."""

import structlog

from schema.context import Info
from server.instances.idempotency import Accepted

log = structlog.get_logger(__name__)


def log_accepted(accepted: Accepted, info: Info) -> Accepted:
    if info.context.is_rehearsal:
        return accepted
    operation = accepted.operation
    log.info(
        "operation.accepted",
        kind=operation.kind,
        operation_id=operation.id,
        instance_id=operation.instance_id,
        token_id=operation.requested_by,
        replayed=accepted.replayed,
    )
    return accepted
