"""Types and inputs of starts by steps and of recovery."""

from datetime import datetime, timedelta

import strawberry

from schema.enums import described
from server.conversion import convert
from server.db import tables
from server.enums import RecoveryBilling, RecoveryTrigger, StartStep
from server.errors import Invalid, Problem
from server.instances.recovery import incident, spec
from server.instances.start_steps import INVALID_RECOVERY

described(
    StartStep,
    description="How a stopped or lost instance comes back.",
    values={
        "SAME": "Its machine is started.",
        "MIGRATE": "Its machine is moved to another node of its region. Data on the machine's own disks is lost.",
        "RELOCATE": "A new machine is made, also in another region, and the old one is removed. Data on the machine's "
        "own disks is lost.",
        "OTHER": "Another step, of a newer version of the server. Refused in inputs.",
    },
)
described(
    RecoveryTrigger,
    description="What an instance is recovered from.",
    values={
        "RECLAIM": "The provider has reclaimed its spot machine.",
        "LOSS": "The provider no longer has its machine, by two looks a minute apart.",
        "OTHER": "Another trigger, of a newer version of the server. Refused in inputs.",
    },
)
described(
    RecoveryBilling,
    description="How the new machine of a relocation is billed.",
    values={
        "SAME": "As the instance was requested.",
        "ON_DEMAND_AFTER": "On demand, once no spot candidate accepts.",
        "OTHER": "Another way, of a newer version of the server. Refused in inputs.",
    },
)

ON = "What it is recovered from."
STEPS = "Steps of each attempt, tried in the order SAME, MIGRATE, RELOCATE."
REGIONS = "Regions of a new machine; default: those of the instance."
BILLING = "How a new machine is billed."
GIVE_UP_AFTER = "How long attempts are made, 60 s to 30 days."
REPLACE = (
    "Whether another machine is made when the provider announces a reclaim. Once it is healthy it takes over, and the "
    "instance stays READY. Not with volumes that only one machine can hold."
)
DRAIN = "How long the old machine stays after that, 0 to 3600 s."
ALLOW_DATA_LOSS = (
    "Whether the data on the machine's own disks may be lost: MIGRATE, RELOCATE and replaceBeforeReclaim lose it."
)


@strawberry.input(
    description="How an instance comes back under its own id after a spot reclaim or the loss of its machine."
)
class RecoveryInput:
    allow_data_loss: bool = strawberry.field(
        description=ALLOW_DATA_LOSS + " Without true, they are refused with DATA_LOSS_NOT_ALLOWED."
    )
    on: list[RecoveryTrigger] = strawberry.field(
        default_factory=lambda: [RecoveryTrigger.RECLAIM, RecoveryTrigger.LOSS], description=ON
    )
    steps: list[StartStep] | None = strawberry.field(
        default=None, description=STEPS + " Default: all of them with allowDataLoss, else SAME."
    )
    regions: list[str] | None = strawberry.field(default=None, description=REGIONS)
    billing: RecoveryBilling = strawberry.field(default=RecoveryBilling.SAME, description=BILLING)
    give_up_after: timedelta = strawberry.field(default=timedelta(days=1), description=GIVE_UP_AFTER)
    replace_before_reclaim: bool = strawberry.field(default=False, description=REPLACE)
    drain: timedelta = strawberry.field(default=timedelta(minutes=1), description=DRAIN)

    def to_domain(self) -> spec.Recovery:
        return spec.Recovery(
            self.allow_data_loss,
            on=tuple(self.on),
            steps=None if self.steps is None else tuple(self.steps),
            regions=None if self.regions is None else tuple(self.regions),
            billing=self.billing,
            give_up_after=self.give_up_after,
            replace_before_reclaim=self.replace_before_reclaim,
            drain=self.drain,
        )


@strawberry.input(one_of=True, description="Change of an instance's recovery.")
class RecoveryChange:
    set: RecoveryInput | None = strawberry.field(
        default=strawberry.UNSET, description="New recovery; it replaces the present one."
    )
    remove: bool | None = strawberry.field(default=strawberry.UNSET, description="true: remove it.")

    def to_domain(self) -> spec.RecoveryChange:
        if self.remove is False:
            message = "Omit `recovery` to keep it unchanged."
            raise Invalid([Problem(INVALID_RECOVERY, message, ("input", "recovery", "remove"))])
        return spec.RecoveryChange(self.set.to_domain() if isinstance(self.set, RecoveryInput) else None)


@strawberry.type(
    description="A recovery in progress: the machine was reclaimed or lost, and the instance is not READY yet."
)
class RecoveryIncident:
    trigger: RecoveryTrigger = strawberry.field(description="What happened.")
    began_at: datetime = strawberry.field(description="When.")
    tries: int = strawberry.field(description="Attempts so far; each is an operation START with the reason RECOVERY.")
    gives_up_at: datetime = strawberry.field(description="Until when attempts are made.")


@strawberry.type(description="How an instance comes back under its own id.")
class Recovery:
    on: list[RecoveryTrigger] = strawberry.field(description=ON)
    steps: list[StartStep] = strawberry.field(description=STEPS)
    regions: list[str] | None = strawberry.field(description=REGIONS)
    billing: RecoveryBilling = strawberry.field(description=BILLING)
    give_up_after: timedelta = strawberry.field(description=GIVE_UP_AFTER)
    replace_before_reclaim: bool = strawberry.field(description=REPLACE)
    drain: timedelta = strawberry.field(description=DRAIN)
    allow_data_loss: bool = strawberry.field(description=ALLOW_DATA_LOSS)
    incident: RecoveryIncident | None = strawberry.field(description="The recovery in progress, if any.")

    @classmethod
    def of(cls, row: tables.InstanceLike) -> "Recovery | None":
        if row.recovery is None:
            return None
        wanted = spec.read(row.recovery)
        regions = None if wanted.regions is None else list(wanted.regions)
        return convert(
            cls, wanted, on=list(wanted.on), steps=list(wanted.all_steps), regions=regions, incident=_incident(row)
        )


def _incident(row: tables.InstanceLike) -> RecoveryIncident | None:
    state = row.recovery_state
    if state is None or not incident.is_open(row):
        return None
    return RecoveryIncident(
        trigger=RecoveryTrigger(state["trigger"]),
        began_at=datetime.fromisoformat(state["since"]),
        tries=state["now"],
        gives_up_at=incident.gives_up_at(row),
    )
