"""Why a request was refused: nothing was written."""

from server.error_codes.code import ErrorCode


def _invalid(code: str, when: str, help: str = "Correct the field that `path` names.") -> ErrorCode:
    return ErrorCode(code, when, help)


def _missing(what: str) -> ErrorCode:
    return ErrorCode(
        f"{what.upper()}_NOT_FOUND",
        f"There is no such {what} in this project.",
        "Check the id, and that the token belongs to the right project.",
    )


CODES = (
    _missing("instance"),
    _missing("operation"),
    _missing("token"),
    _missing("project"),
    _missing("job"),
    _missing("delivery"),
    _missing("webhook"),
    _missing("event"),
    _missing("budget"),
    _missing("quota"),
    _missing("alert"),
    ErrorCode("INVALID_ALERT", "A field of the alert is out of range.", "Correct the field that `path` names."),
    ErrorCode("TOO_MANY_ALERTS", "The project has 100 alerts already.", "Delete one first."),
    ErrorCode(
        "BUDGET_EXCEEDED",
        "The request may cost more than is left of the budget `budgetName`. Of an operation: the budget was used up "
        "while it was open, so its instance was stopped, or its machine removed.",
        "Shorten its lifetime, choose a cheaper product, raise the limit, or wait until `resetsAt`.",
    ),
    ErrorCode("BUDGET_NAME_TAKEN", "Another budget of the project has this name.", "Choose another name."),
    ErrorCode("INVALID_BUDGET", "A field of the budget is out of range.", "Correct the field that `path` names."),
    ErrorCode("TOO_MANY_BUDGETS", "The project, or the token, has 100 budgets already.", "Delete one first."),
    ErrorCode(
        "PROJECT_QUOTA_EXCEEDED",
        "The request would exceed `limit` of the quota `quotaId`, which an ADMIN of the project has set.",
        "Stop or delete instances that are not used, or have an ADMIN raise it with setQuota.",
    ),
    ErrorCode("INVALID_QUOTA", "A field of the quota is out of range.", "Correct the field that `path` names."),
    ErrorCode("TOO_MANY_QUOTAS", "The project has 100 quotas already.", "Remove one first: setQuota without maxima."),
    ErrorCode(
        "TOKEN_LIMIT_EXCEEDED",
        "The token is not for this product or region (`limit`).",
        "Choose another one, or use another token; `viewer { token { limits } }` has the limits.",
    ),
    ErrorCode("QUOTE_EXPIRED", "The quote is older than five minutes.", "Request another quote."),
    ErrorCode(
        "QUOTE_MISMATCH",
        "`quoteId` is not of this request, or its product is no longer offered.",
        "Send the input of the quote, or request another quote.",
    ),
    ErrorCode(
        "PRICE_DRIFTED",
        "The quoted machine costs more now than `maxPriceDrift` allows.",
        "Request another quote, or raise `maxPriceDrift`.",
    ),
    ErrorCode("INVALID_MAX_PRICE_DRIFT", "`maxPriceDrift` is not 0 to 1.", "0.05 is 5 per cent."),
    ErrorCode(
        "INVALID_TOKEN_LIMITS",
        "A limit of the token is out of range, or the token has the role ADMIN.",
        "Correct the field that `path` names.",
    ),
    ErrorCode(
        "PROVIDER_JOB_NOT_FOUND",
        "The provider has no such job of a machine of this project.",
        "Use an id of the query providerJobs.",
    ),
    ErrorCode(
        "MIGRATION_JOB_NOT_BREAKABLE",
        "The provider does not interrupt migrations.",
        "Wait for its end, or delete the instance.",
    ),
    ErrorCode("PROVIDER_JOB_ENDED", "The provider's job has ended.", "Nothing: there is nothing to interrupt."),
    ErrorCode("CACHE_NOT_FOUND", "There is no cache with this name.", "Use a name of the query cacheStats."),
    ErrorCode("MACHINE_NOT_FOUND", "The provider has no such machine.", "Use an id of `fleet`."),
    ErrorCode(
        "OPERATION_IN_PROGRESS",
        "Another operation of the instance is in progress.",
        "Wait for `operation`, or cancel it with cancelOperation.",
        retryable=True,
    ),
    ErrorCode(
        "QUEUE_FULL",
        "MAX_PENDING_CREATES creates of the project wait for their turn already.",
        "Send it again after `retryAt`, or raise the setting.",
        retryable=True,
    ),
    ErrorCode(
        "QUEUED_BEHIND",
        "Older operations of the project wait for every offer that would fit; `ahead` says how many.",
        "Give onNoCapacity to wait behind them, name other regions, or cancel one of them.",
        retryable=True,
    ),
    ErrorCode(
        "VERSION_CONFLICT",
        "The instance has changed since the version in expectedVersion.",
        "Read the instance again and decide again.",
    ),
    ErrorCode(
        "IDEMPOTENCY_KEY_REUSED",
        "The idempotency key was used before with another input.",
        "Use a new key for a new request; repeat a request with exactly the same input.",
    ),
    _invalid(
        "INVALID_LIFETIME",
        "A limit of the lifetime is out of its range, in the past, contradictory or never takes effect.",
    ),
    _invalid("INVALID_WAIT", "A wait for capacity lasts from 60 seconds to 30 days."),
    _invalid("INVALID_PRIORITY", "A priority is 0 to 100."),
    _invalid("INVALID_RECOVERY", "The steps of a start are none, repeated or not known."),
    ErrorCode(
        "DATA_LOSS_NOT_ALLOWED",
        "MIGRATE and RELOCATE lose what is on the machine's own disks, and the request does not allow that.",
        "Set `allowDataLoss: true` if nothing on these disks is needed, or leave these steps out.",
    ),
    ErrorCode(
        "LIFETIME_REQUIRED",
        "The project's policy requires maxDuration or deadline.",
        "Give `lifetime` with one of them; `Project.lifetimePolicy` has the rules.",
    ),
    ErrorCode(
        "LIFETIME_ABOVE_POLICY",
        "The lifetime is longer than the project's policy allows.",
        "Give at most `atMost`, or have an ADMIN change the policy with setLifetimePolicy.",
    ),
    ErrorCode(
        "LIFETIME_OVER",
        "The deadline has passed, or the end of the lifetime was accepted and is being carried out.",
        "Before a start: call extendLifetime, or give another `lifetime`. During an end: wait for it, then start.",
    ),
    ErrorCode(
        "NOT_CANCELLABLE", "The operation has ended or can no longer be cancelled.", "Read `operation` for its result."
    ),
    ErrorCode(
        "OPERATION_NOT_RETRYABLE",
        "The operation has not failed, is no CREATE, START or DELETE, or another operation followed it.",
        "Read the message; `Instance.actions` lists what is possible now.",
    ),
    ErrorCode(
        "MACHINE_MAY_EXIST",
        "The provider has not said whether it created a machine for the instance; it is being searched for.",
        "Wait until `Instance.machineMayExist` is false, then try again.",
        retryable=True,
    ),
    ErrorCode(
        "INVALID_TRANSITION",
        "The instance's status does not allow this.",
        "Read `current` and `allowed`; `Instance.actions` lists what is possible.",
    ),
    *(
        ErrorCode(
            f"INSTANCE_NOT_{word}",
            f"The instance's status does not allow to {verb} it.",
            "`Instance.actions` lists what is possible now.",
        )
        for word, verb in (
            ("STARTABLE", "start"),
            ("STOPPABLE", "stop"),
            ("RESTARTABLE", "restart"),
            ("MIGRATABLE", "migrate"),
            ("UPDATABLE", "update"),
            ("UPGRADABLE", "upgrade"),
        )
    ),
    ErrorCode("INSTANCE_DELETED", "The instance is deleted.", "Create another."),
    ErrorCode("INSTANCE_NOT_RUNNING", "The machine does not run, so it can't be checked.", "Start it first."),
    ErrorCode("NOTHING_TO_CHECK", "The instance exposes nothing that can be probed.", "Expose a port, or wait."),
    _invalid("NOTHING_TO_UPDATE", "The update has no field.", "Give at least one field."),
    _invalid("INSTANCE_NAME_TAKEN", "Another instance has this name.", "Choose another name, or delete that instance."),
    ErrorCode("ALREADY_ADOPTED", "The machine belongs to an instance already.", "Use that instance."),
    _invalid(
        "MACHINE_HAS_INSTANCE",
        "The machine was created for an instance that has another name.",
        "Adopt it without a name.",
    ),
    ErrorCode(
        "INSTANCE_NOT_EXITED",
        "Only an exited instance can be saved as an image.",
        "Stop it with stopInstance, and call saveImage when it is EXITED.",
        retryable=True,
    ),
    ErrorCode("MACHINE_NOT_ADOPTABLE", "The machine's state does not allow to adopt it.", "Wait until it runs."),
    ErrorCode(
        "TARGET_PORT_NOT_EXPOSED",
        "The health check's target port is not exposed by the instance.",
        "Expose the port, or choose another targetPort.",
    ),
    _invalid("INVALID_INSTANCE_NAME", "The name is empty, too long or not printable."),
    _invalid("INVALID_PRODUCT_NAME", "The product name is empty or too long."),
    _invalid("INVALID_SOURCE", "More than one of source, templateId and image is given."),
    _invalid("INVALID_TEMPLATE_ID", "Neither or both of templateId and image are given, or the id is malformed."),
    _invalid("INVALID_IMAGE", "The image's name is empty or too long."),
    _invalid("INVALID_REGISTRY_AUTH_ID", "The id of the registry credential is empty."),
    _invalid("INVALID_GPU_COUNT", "gpuCount is not 1 to 8, or a CPU instance is to have GPUs."),
    _invalid("INVALID_KIND", "The kind is neither GPU nor CPU."),
    _invalid("INVALID_ROOTFS_SIZE", "The root disk is outside the limits, or no product takes that size."),
    _invalid("INVALID_REGION", "The provider has no such region.", "Use a code of the query regions."),
    _invalid("INVALID_MAX_HOURLY_PRICE", "The maximum price is zero, negative, not in USD or implausible."),
    _invalid("INVALID_ENV", "A variable's name or value is too long or malformed, or given twice."),
    _invalid("INVALID_PORT", "A port is out of range, reserved, of an unknown type or given twice."),
    _invalid("INVALID_COMMAND", "The command is too long."),
    _invalid("INVALID_ENTRYPOINT", "The entrypoint is too long."),
    _invalid("INVALID_TOOL", "A tool is unknown or given twice, its port is taken, or there are too many ports."),
    _invalid("INVALID_MIN_CUDA_VERSION", "The CUDA version is malformed, or the instance has no GPU."),
    _invalid("INVALID_REGISTRY_AUTH", "A field of the registry credential is empty or too long."),
    _invalid("INVALID_TEMPLATE_NAME", "The template's name is empty, too long or not printable."),
    _invalid("INVALID_README", "The readme is too long."),
    _invalid("INVALID_NETWORK_NAME", "The network's name is empty, too long or not printable."),
    _invalid("NETWORKS_NOT_SUPPORTED", "The region has no private networks.", "Use a region with `supportsNetworks`."),
    _invalid("INVALID_NOTE", "The note is too long."),
    ErrorCode("PREWARM_NOT_FOUND", "There is no such prewarmed image in this project.", "Use an id of `prewarms`."),
    ErrorCode(
        "NOT_CREATED_HERE",
        "The object was created outside of this project, so it may belong to others.",
        "An ADMIN of the project `default` may change it.",
    ),
    ErrorCode(
        "CREATION_NOT_CONFIRMED",
        "The provider has not confirmed a create, or another one of the same name.",
        "Repeat the request with the same idempotency key in a minute.",
        retryable=True,
    ),
    ErrorCode(
        "REGISTRY_AUTH_IN_USE",
        "An instance or template uses the registry credential.",
        "Delete those first.",
    ),
    _invalid("INVALID_NETWORK_ID", "The id of the private network is empty."),
    _invalid("NETWORK_NOT_FOUND", "The provider has no such private network.", "Check the id."),
    _invalid(
        "NETWORK_REGION_MISMATCH",
        "The private network is in another region than those requested.",
        "Leave the region out, or choose a network of that region.",
    ),
    ErrorCode("VOLUME_NOT_FOUND", "There is no such volume in this project.", "Use an id of `volumes`."),
    _invalid("INVALID_VOLUME", "The name, size or mount path of a volume is not possible, or it is given twice."),
    _invalid("VOLUME_NAME_TAKEN", "Another volume of the project has this name.", "Choose another name."),
    _invalid("VOLUMES_NOT_SUPPORTED", "The region has no volumes.", "Use a region with `supportsNetworkStorage`."),
    _invalid(
        "VOLUME_REGION_MISMATCH",
        "The volumes are in different regions, or in none of those requested.",
        "Leave the region out, and use volumes of one region.",
    ),
    ErrorCode(
        "VOLUME_IN_USE",
        "An instance has the volume, running or not.",
        "Delete that instance first: `attachedTo` of the volume names it.",
    ),
    ErrorCode(
        "VOLUME_NOT_AVAILABLE",
        "The volume is being created or deleted, has failed, or is gone at the provider.",
        "Wait until it is AVAILABLE; if it has FAILED, delete it and create another.",
        retryable=True,
    ),
    _invalid("INVALID_LABEL", "A label is too long, or given twice, or there are too many."),
    _invalid("INVALID_HEALTH_CHECK", "A field of the health check is out of range."),
    _invalid("INVALID_READY_TIMEOUT", "readyTimeout is not 60 to 86400 seconds."),
    _invalid("INVALID_HEALTH_PATH", "The health check's path is not a path on the endpoint's own host."),
    _invalid("INVALID_WEBHOOK", "Both or none of url and remove are given."),
    _invalid("INVALID_WEBHOOK_URL", "The webhook's address is malformed or not publicly reachable."),
    _invalid("INVALID_EVENT_TYPE", "No type is given, or there is no such event type."),
    ErrorCode("TOO_MANY_WEBHOOKS", "The project has as many webhooks as it may.", "Delete one that is not used."),
    _invalid("INVALID_IDEMPOTENCY_KEY", "The idempotency key is empty or too long."),
    _invalid("INVALID_TARGET", "None, or more than one, of the ways to name an instance is given."),
    _invalid("INVALID_NOVITA_ID", "The provider's id is empty or too long."),
    _invalid("INVALID_TOKEN_NAME", "The token's name is empty or too long."),
    ErrorCode("TOO_MANY_TOKENS", "The project has as many valid tokens as it may.", "Revoke those that are not used."),
    _invalid("INVALID_PROJECT_NAME", "The project's name is empty or too long."),
    _invalid("PROJECT_NAME_TAKEN", "Another project has this name.", "Choose another name."),
    _invalid("INVALID_EXPIRY", "The expiry is not in the future."),
    _invalid("INVALID_OVERLAP", "The overlap of two webhook secrets is out of range."),
    _invalid("INVALID_TIMEOUT", "The timeout is out of range."),
    _invalid("INVALID_LIMIT", "The limit is out of range."),
    _invalid("INVALID_EXPECTED_COUNT", "The expected number is missing, out of range, or without a filter."),
    ErrorCode(
        "COUNT_DIFFERS",
        "The filter matches another number of instances than `expectedCount`.",
        "Look at the instances again (`instances(filter: ...)`), and send the number that you mean.",
    ),
    _invalid("INVALID_IDS", "There are no ids, or too many."),
    _invalid("INVALID_JOB_KIND", "There is no such job kind."),
    ErrorCode(
        "JOB_NOT_CANCELLABLE",
        "The job has ended, or enforces the lifetime of an instance.",
        "Read the job's status; change a lifetime with updateInstance or extendLifetime.",
    ),
    ErrorCode("JOB_NOT_RETRYABLE", "Only a failed job can be retried.", "Read the job's status."),
    ErrorCode(
        "JOB_SERVES_OPERATION", "The job carries out an open operation.", "Use cancelOperation with that operation."
    ),
    ErrorCode(
        "OPERATION_HAS_ENDED",
        "The job's operation has ended, so a retry would do nothing.",
        "Use retryOperation with the failed operation, request a new one, or delete the instance.",
    ),
    ErrorCode("TEMPLATE_NOT_FOUND", "The provider has no such template.", "Use an id of the query templates."),
    ErrorCode(
        "TEMPLATE_INVALID",
        "The template can't be run as it is; the message names the field.",
        "Correct the template at the provider.",
    ),
    ErrorCode(
        "SIGNING_KEY_MISSING",
        "The server has no key to sign webhooks with.",
        "The operator has to set WEBHOOK_SIGNING_KEY.",
    ),
)

# Some of them also refuse a whole request, if they hold for all regions.
PLACEMENT = (
    ErrorCode(
        "PRODUCT_NOT_FOUND",
        "The product is not offered here, or in no region at all.",
        "Use a name of the query products; the message suggests similar names and other regions.",
    ),
    ErrorCode(
        "OUT_OF_STOCK",
        "The product is offered, but not in stock, or not with that many GPUs.",
        "Try again later, with fewer GPUs, in more regions, or with another product.",
        retryable=True,
    ),
    ErrorCode(
        "PRICE_ABOVE_MAX",
        "The lowest price is above maxHourlyPrice, which is for all GPUs together.",
        "Raise maxHourlyPrice, or wait for a lower price.",
        retryable=True,
    ),
    ErrorCode(
        "BILLING_NOT_OFFERED",
        "The product is not offered in this billing mode.",
        "Choose SPOT_THEN_ON_DEMAND, or the other mode.",
    ),
)
