"""How ids look in logs and traces: as callers see them, so that one copied from an answer is found."""

PREFIXES = {"instance_id": "inst_", "operation_id": "op_", "token_id": "tok_", "delivery_id": "dlv_"}
