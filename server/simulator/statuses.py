"""All known statuses of the provider, and how long an instance stays in the transient ones."""

STATUSES = frozenset(
    [
        "pending",
        "toCreate",
        "creating",
        "pulling",
        "running",
        "toStart",
        "starting",
        "toStop",
        "stopping",
        "exited",
        "toRestart",
        "restarting",
        "toRemove",
        "removing",
        "removed",
        "toReset",
        "resetting",
        "migrating",
        "freezing",
    ]
)

# From the image pull on, until the GPUs are released.
BILLED_STATUSES = STATUSES - {"pending", "toCreate", "creating", "toStart", "exited", "toRemove", "removing", "removed"}

# Simulated seconds in each transient status, plus or minus a seeded quarter.
STATUS_SECONDS = {
    "pending": 0.3,
    "toCreate": 0.4,
    "creating": 1.4,
    "pulling": 4.6,
    "toStart": 0.4,
    "starting": 2.0,
    "toStop": 0.3,
    "stopping": 1.2,
    "toRestart": 0.3,
    "restarting": 2.0,
    "toReset": 0.3,
    "resetting": 1.5,
    "migrating": 3.0,
    "freezing": 1.5,
    "toRemove": 0.3,
    "removing": 1.0,
    "removed": 3.0,
}
