"""Why an accepted operation failed."""

from server.error_codes.code import ErrorCode

CODES = (
    ErrorCode(
        "ENCRYPTION_KEY_MISSING",
        "The instance's environment variables are encrypted with a key that this process does not have.",
        "The operator has to add the key to ENCRYPTION_KEY of every process.",
        retryable=True,
    ),
    ErrorCode(
        "NO_OPTIMAL_PRODUCT_ANY_REGION",
        "Every product and region that fits is out of stock, or refused the create.",
        "Try again later, allow more regions or on-demand billing, or choose another product.",
        retryable=True,
    ),
    ErrorCode(
        "RESOURCE_CONSTRAINTS",
        "The provider has no GPU free for this instance now.",
        "Try again later. An exited instance whose GPU was taken can be migrated with migrateInstance.",
        retryable=True,
    ),
    ErrorCode(
        "CANDIDATE_REFUSED",
        "The provider refused this product or region for a reason other than stock.",
        "Allow other regions or another billing option.",
    ),
    ErrorCode(
        "CUDA_VERSION_INCOMPATIBLE",
        "No node of these regions has the CUDA version that the template asks for.",
        "Lower the template's minCudaVersion, allow more regions, or choose a newer product.",
    ),
    ErrorCode(
        "IMAGE_NOT_FOUND",
        "The provider found no such container image.",
        "Check the image's name and tag; a private image needs registryAuthId.",
    ),
    ErrorCode(
        "IMAGE_URL_OR_AUTH_ERROR",
        "The provider can't read the image's address, or the registry refused the credential.",
        "Check the image's name, and the registry credential at the provider.",
    ),
    ErrorCode(
        "IMAGE_TOO_LARGE",
        "The image is larger than the provider accepts.",
        "Use a smaller image, or a larger rootfsSizeGb.",
    ),
    ErrorCode(
        "IMAGE_PULL_FAILED",
        "The machine was created, but its image could not be pulled.",
        "Check the image and its registry credential, then delete this instance and create another.",
    ),
    ErrorCode(
        "REGISTRY_AUTH_NOT_FOUND",
        "The provider has no registry credential with this id.",
        "Use an id of the query registryAuths, or store the credential at the provider first.",
    ),
    ErrorCode(
        "IMAGE_NOT_SAVED",
        "The provider's job that saves the instance as an image failed.",
        "Read the message; check the image's name and that its credential may push, then call saveImage again.",
    ),
    ErrorCode(
        "IMAGE_SAVE_INTERRUPTED",
        "The provider's job that saves the instance as an image was interrupted.",
        "Call saveImage again if the image is still wanted.",
        retryable=True,
    ),
    ErrorCode(
        "CONTAINER_EXITED",
        "The container ended by itself; `Instance.exit` has its code and the provider's message.",
        "Check the command and the image's logs at the provider, then start it again; a container must keep running.",
    ),
    ErrorCode(
        "FROZEN",
        "The provider stopped the machine because the account is in arrears.",
        "Top up the account at the provider, then start the instance again.",
    ),
    ErrorCode(
        "SPOT_RECLAIMED",
        "The provider reclaimed the spot instance before it was ready.",
        "Use retryOperation to start it again, or create another with billing ON_DEMAND.",
        retryable=True,
    ),
    ErrorCode(
        "START_FAILED",
        "The provider reports that the machine failed to start.",
        "Read the message; delete the instance and create another.",
    ),
    ErrorCode(
        "EXITED_EARLY",
        "The machine stopped before it was ready, and the provider does not say why.",
        "Start it again, or delete it and create another.",
        retryable=True,
    ),
    ErrorCode(
        "WAIT_EXPIRED",
        "No capacity was offered to it in the time that `onNoCapacity` allowed.",
        "Send it again with a longer wait, more regions or a higher maxHourlyPrice.",
        retryable=True,
    ),
    ErrorCode(
        "READY_TIMEOUT",
        "The machine did not run within readyTimeout, by default INSTANCE_MAX_WAIT.",
        "It is still billed, and becomes READY if it comes up later; retryOperation waits again. Large images take "
        "long to pull: give a longer readyTimeout.",
        retryable=True,
    ),
    ErrorCode(
        "HEALTH_CHECK_FAILED",
        "The machine runs, but its endpoints did not become healthy in time.",
        "Check the service on the machine. The instance becomes READY once its endpoints respond, at once with "
        "checkHealth; or change the health check.",
        retryable=None,
    ),
    ErrorCode(
        "QUOTA_EXCEEDED",
        "A limit of the provider account is reached, such as its number of GPUs or instances.",
        "Delete instances that are not needed, or ask the provider to raise the limit.",
    ),
    ErrorCode(
        "BALANCE_EXHAUSTED",
        "The provider account has no balance or budget left.",
        "Top up the account at the provider, then repeat the request.",
    ),
    ErrorCode(
        "PROVIDER_AUTH_FAILED",
        "The provider refused NOVITA_API_KEY, or the key lacks a permission.",
        "The operator of this server has to set a valid key; work waits for it up to PROVIDER_MAX_WAIT.",
        retryable=True,
    ),
    ErrorCode(
        "PAYMENT_REQUIRED",
        "The provider does nothing for this account until it is paid (HTTP 402).",
        "Top up the account at the provider; work waits for it up to PROVIDER_MAX_WAIT.",
        retryable=True,
    ),
    ErrorCode(
        "PROVIDER_SUSPENDED",
        "The provider refused our key or account a moment ago, so no calls are sent until the next trial call.",
        "The operator of this server has to correct the key or the account; `/readyz` has the provider's words.",
        retryable=True,
    ),
    ErrorCode(
        "PROVIDER_VALIDATION_FAILED",
        "The provider refused a field of the request; the message has its words.",
        "Correct the request.",
    ),
    ErrorCode(
        "PREPAID_INSTANCE_NOT_SUPPORT_RELEASE",
        "The provider does not delete a subscription before its end.",
        "Let the subscription end, or ask the provider.",
    ),
    ErrorCode(
        "PROVIDER_NOT_FOUND",
        "The provider does not know what the request names.",
        "Check the ids in the request; the thing may have been deleted at the provider.",
    ),
    ErrorCode(
        "GONE_AT_PROVIDER",
        "The machine no longer exists at the provider.",
        "Delete the instance, and create another if it is needed.",
        retryable=None,
    ),
    ErrorCode(
        "LEFT_AT_FORMER_PROVIDER",
        "The database was moved to another provider account, and the machine stayed at the former one.",
        "Delete the machine at the former provider if it runs there, then delete the instance.",
    ),
    ErrorCode(
        "MASS_DISAPPEARANCE",
        "The provider shows so few of our machines that its answer is not believed; nothing was changed.",
        "Repeat the request later. Machines that were removed on purpose are deleted with deleteInstance.",
        retryable=True,
    ),
    ErrorCode(
        "CREATE_LOST",
        "The create was interrupted and left neither a machine nor a job.",
        "Delete the instance and create another.",
        retryable=True,
    ),
    ErrorCode(
        "INVALID_STATE_CHANGE",
        "The machine's state at the provider does not allow this.",
        "Wait until the instance's status settles, then repeat the request.",
        retryable=True,
    ),
    ErrorCode(
        "PROVIDER_BUSY",
        "The machine was changing state for longer than PROVIDER_MAX_WAIT.",
        "Repeat the request once the instance's status settles.",
        retryable=True,
    ),
    ErrorCode(
        "RECLAIMED_FIRST",
        "The machine was reclaimed before another one was made in its place.",
        "Recovery goes on by its steps.",
        retryable=True,
    ),
    ErrorCode(
        "REPLACEMENT_NOT_NEEDED",
        "The machine was stopped or replaced while another one was made in its place, which is removed.",
        "Nothing.",
    ),
    ErrorCode(
        "NO_START_STEP",
        "The machine is gone, and none of the steps of the start makes another one.",
        "Start it with the step RELOCATE, or delete it.",
    ),
    ErrorCode(
        "NETWORK_ERROR",
        "The provider did not respond, or can't be reached.",
        "Repeat the request later.",
        retryable=True,
    ),
    ErrorCode(
        "PROVIDER_ERROR",
        "The provider failed, or sent a response that can't be read.",
        "Repeat the request later.",
        retryable=True,
    ),
    ErrorCode(
        "CIRCUIT_OPEN",
        "The provider failed so often that no calls are sent for a while.",
        "Repeat the request later; `retryAfterMs` says when.",
        retryable=True,
    ),
    ErrorCode(
        "WORKER_LOST",
        "Several worker processes ended while they ran the job.",
        "Repeat the request. If it happens again, the operator should read the workers' logs.",
        retryable=True,
    ),
    ErrorCode(
        "UNREADABLE_ARGUMENTS",
        "A job was written by a version that this worker does not understand.",
        "The operator has to finish the upgrade of all processes; then repeat the request.",
    ),
    ErrorCode(
        "INTERNAL_ERROR",
        "A mistake in Pilotlight; the log has the details.",
        "Repeat the request once. Report it if it happens again.",
        retryable=True,
    ),
    ErrorCode("CANCELLED", "The job was cancelled with cancelJob.", "Repeat the request if it is still needed."),
)
