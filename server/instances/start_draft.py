"""What a start may change about how an instance is checked and who is told; `None` leaves it as it is."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from server.db.tables import Instance
from server.errors import Invalid, Problem
from server.guard import Inside
from server.instances.drafts import target_problems, webhook_problems
from server.probes.plan import HealthCheckDraft

TARGET_PORT = ("input", "targetPort")


@dataclass(frozen=True, slots=True)
class StartDraft:
    """`health_check` takes the place of all that was said before; `target_port` wins over the one in it."""

    health_check: HealthCheckDraft | None = None
    webhook_url: str | None = None
    target_port: int | None = None

    def check(self, inside: Inside) -> None:
        """Raise Invalid with everything that is wrong in itself."""
        problems = [*self._problems(), *webhook_problems(self.webhook_url, inside)]
        if problems:
            raise Invalid(problems)

    def asked(self) -> dict[str, Any]:
        """What was said, for telling whether a request is the same as another."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def fields(self, instance: Instance) -> dict[str, Any]:
        """What is to be written; raises Invalid where the instance does not fit."""
        fields: dict[str, Any] = {}
        wanted = self.health_check
        if self.target_port is not None:
            wanted = replace(wanted or HealthCheckDraft(), target_port=self.target_port)
        if wanted is not None:
            exposed = {int(each["port"]) for each in (*instance.ports, *instance.endpoints)}
            path = TARGET_PORT if self.target_port is not None else ("input", "healthCheck", "targetPort")
            problems = list(target_problems(wanted, exposed, path))
            if problems:
                raise Invalid(problems)
            before = instance.health_check if self.health_check is None else {}
            fields["health_check"] = {**before, **wanted.stored()}
        if self.webhook_url is not None:
            fields |= {"webhook_url": self.webhook_url, "webhook_disabled_at": None}
        return fields

    def _problems(self) -> Iterator[Problem]:
        if self.health_check is not None:
            yield from self.health_check.problems(("input", "healthCheck"))
        if self.target_port is not None and not 1 <= self.target_port <= 65535:
            yield Problem("INVALID_HEALTH_CHECK", "It must be 1 to 65535.", TARGET_PORT)
