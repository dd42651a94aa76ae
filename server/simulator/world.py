"""All state of the simulated provider, advanced to the current time at each request."""

import heapq
import secrets
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from server.simulator import lifecycle
from server.simulator.billing import account, bills
from server.simulator.billing.meter import Meter
from server.simulator.catalog import Catalog, Product
from server.simulator.clock import SimulatedClock
from server.simulator.dialect import Dialect, ListPorts, parse_ports
from server.simulator.faults import INSTANCE_FAULTS, FaultKind, Faults
from server.simulator.instance_index import InstanceIndex
from server.simulator.journal import Journal, Record
from server.simulator.models import Instance, MachineStep
from server.simulator.options import SimulatorOptions
from server.simulator.render import render_request, render_state
from server.simulator.requests import ApiRequest, JsonObject, ProviderRefusal, not_found
from server.simulator.scenario.market_plan import MarketPlan
from server.simulator.seeds import first_records

# Cached rendered instances; 0.9 KB each, so at most 120 MB.
RENDERED_MAX = 131_072


@dataclass(slots=True)
class InstanceFaults:
    """Faults in an instance's later course; times in simulated seconds."""

    pull_fails: bool = False
    reclaim_after: float = -1
    listed_after: float = 0
    hidden: bool = False


class EndpointHost(Protocol):
    """Assigns working addresses to running instances."""

    def open(self, instance: Instance) -> None: ...
    def trim(self, instance: Instance) -> None: ...
    def close(self, instance: Instance) -> None: ...
    def listen_where_due(self) -> None: ...


class World:
    """One account at the simulated provider.

    Nothing here awaits, so each request is atomic; `commit` stores its changes before the response. Time-driven steps
    wait in a heap and are applied in order by `advance`, so 100,000 instances need no timers. Applied steps are not
    stored: they follow from the stored plan.
    """

    def __init__(self, options: SimulatorOptions, clock: SimulatedClock | None = None) -> None:
        self.options = options
        # Tells this world from every other; kept in the state file, so that a restart continues the same world.
        self.id = secrets.token_hex(8)
        self.seed = options.seed
        self.clock = clock or SimulatedClock(options.speed)
        self.catalog = Catalog(seed=options.seed, drift=options.price_drift, stock_factor=options.stock_factor)
        self.market = MarketPlan(self.catalog, self.clock)
        self.meter = Meter()
        self.faults = Faults(options.faults, seed=options.seed)
        self.dialect = options.dialect
        self.instances: dict[str, Instance] = {}
        self.index = InstanceIndex()
        # template, auth, storage, network, job, prewarm: plain records by id.
        self.tables: dict[str, dict[str, JsonObject]] = {}
        self.counters: Counter[str] = Counter()
        self.made: Counter[str] = Counter()  # instances by name, deleted ones included
        self.calls: Counter[str] = Counter()
        self.endpoint_modes: dict[tuple[str, int], str] = {}  # by instance and port: see `EndpointListeners.mode`
        # Lines added by the control API with their places, by instance id and log.
        self.log_lines: dict[tuple[str, str], list[tuple[int, str]]] = {}
        # Utilisation of GPUs that tests have set, by instance: from, to, percent or None for missing points.
        self.loads: dict[str, list[tuple[float, float, float | None]]] = {}
        self.endpoints: EndpointHost | None = None
        # Called when a planned step may be earlier than all others.
        self.on_plan: Callable[[], None] | None = None
        # Base of log addresses; the running simulator sets its own URL.
        self.public_url = "http://127.0.0.1"
        self._due: list[tuple[float, int, Instance, MachineStep]] = []
        self._pushed = 0
        self._rendered: dict[str, tuple[bytes, bytes]] = {}
        self._journal = Journal(options.state_file) if options.state_file else None
        self._pending: list[Record] = []
        self._restore()

    def advance(self) -> float:
        """Apply all due steps in order of time. Returns the simulated time."""
        now = self.clock.now()
        while self._due and self._due[0][0] <= now:
            _, _, instance, step = heapq.heappop(self._due)
            # A command may have replaced the plan; a step counts only while it is first.
            if instance.steps and instance.steps[0] is step:
                del instance.steps[0]
                lifecycle.apply_step(self, instance, step)
                self._rendered.pop(instance.id, None)
                self._push_next(instance)
        self.market.advance(now)
        account.freeze_if_used_up(self)
        if self.endpoints is not None:
            self.endpoints.listen_where_due()
        return now

    def next_due(self) -> float | None:
        planned = (self._due[0][0] if self._due else None, self.market.next_at())
        dues = [each for each in planned if each is not None]
        if (seconds := account.used_up_in(self)) is not None:
            dues.append(self.clock.now() + seconds * self.clock.speed)
        return min(dues, default=None)

    def plan(self, instance: Instance, steps: list[MachineStep]) -> None:
        """Replace the planned steps of an instance."""
        instance.steps = sorted(steps, key=lambda step: step[0])
        self._push_next(instance)
        self.mark_changed(instance)

    def mark_changed(self, instance: Instance) -> None:
        """Store the instance at the next commit and render it again."""
        self._rendered.pop(instance.id, None)
        self._pending.append(("instance", instance.id, instance))

    def add_instance(self, instance: Instance) -> None:
        self.instances[instance.id] = instance
        self.made[instance.name] += 1
        self._pending.append(("made", instance.name, {"count": self.made[instance.name]}))

    def forget_instance(self, instance: Instance) -> None:
        bills.keep_bill(self, instance)
        self.index.remove(instance)
        self.instances.pop(instance.id, None)
        self._rendered.pop(instance.id, None)
        self._pending.append(("instance", instance.id, None))

    def instance_faults(self, route: str) -> InstanceFaults:
        """The faults for the instance that this request creates or starts."""
        faults = InstanceFaults(
            listed_after=self.dialect.list_delay * self.clock.speed, hidden=self.dialect.list_delay_hides_from_get
        )
        for fault in self.faults.match_all(route, INSTANCE_FAULTS) if self.faults.active else ():
            match fault.kind:
                case FaultKind.PULL_FAILURE:
                    faults.pull_fails = True
                case FaultKind.SPOT_RECLAIM:
                    faults.reclaim_after = fault.seconds * self.clock.speed
                case _:
                    faults.listed_after = fault.seconds * self.clock.speed
                    faults.hidden = fault.hide_from_get
        return faults

    def set_dialect(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self._rendered.clear()

    def ports_of(self, instance: Instance) -> list[tuple[int, str]]:
        """The requested ports, and those that the provider adds."""
        if not self.dialect.extra_ports:
            return instance.ports
        requested = {port for port, _ in instance.ports}
        return [*instance.ports, *(each for each in parse_ports(self.dialect.extra_ports) if each[0] not in requested)]

    def page(self, request: ApiRequest, number_name: str = "pageNum") -> tuple[int, int]:
        """(first row, page size) of the page that a request asks for."""
        return self.dialect.page(request.page_number(number_name), request.page_size())

    def set_status(self, instance: Instance, status: str, *, wall: float | None = None) -> None:
        before, instance.status = instance.status, status
        self.index.move(instance, before)
        self.meter.follow(instance, self.clock.wall() if wall is None else wall)

    def instance(self, instance_id: str) -> Instance:
        instance = self.instances.get(instance_id)
        if instance is None:
            raise not_found("instance")
        return instance

    def check_image_auth(self, auth_id: str) -> None:
        if auth_id and auth_id not in self.table("auth"):
            raise ProviderRefusal(400, "IMAGE_URL_OR_AUTH_ERROR", "image auth not found")

    def render_list(self, instances: Iterable[Instance], after: bytes) -> bytes:
        """A page of the list, whose items may say less than a get by id."""
        return self.render(instances, b'{"instances":[', b"]" + after + b"}", shown_ports=self.dialect.list_ports)

    def render(
        self,
        instances: Iterable[Instance],
        before: bytes = b"",
        after: bytes = b"",
        *,
        shown_ports: ListPorts = ListPorts.FULL,
    ) -> bytes:
        """The instances as JSON objects with commas between them.

        A page of 100 must cost less than half a millisecond: the long constant part of each is cached, only the last
        field, the time it has run, is rendered again, and all is joined in one copy.
        """
        wall = self.clock.wall()
        parts = [before]
        for instance in instances:
            used = instance.used_seconds
            if instance.status == "running":
                used += max(0.0, wall - instance.last_started_at)
            if shown_ports is ListPorts.FULL:
                parts.extend(self._rendered.get(instance.id) or self._render(instance))
            else:
                parts.extend(self._render_pieces(instance, shown_ports))
            parts.append(b'%d"},' % used)
        parts[-1] = parts[-1].removesuffix(b",")
        parts.append(after)
        return b"".join(parts)

    def _render(self, instance: Instance) -> tuple[bytes, bytes]:
        if len(self._rendered) >= RENDERED_MAX:
            self._rendered.clear()
        pieces = self._rendered[instance.id] = self._render_pieces(instance, ListPorts.FULL)
        return pieces

    def _render_pieces(self, instance: Instance, shown_ports: ListPorts) -> tuple[bytes, bytes]:
        jobs: list[JsonObject] = [{"Id": job, "type": self.table("job")[job]["type"]} for job in instance.jobs]
        logs = f"{self.public_url}/control/instances"
        state = render_state(
            instance,
            self.ports_of(instance),
            shown_ports,
            has_scheme=self.dialect.endpoints_have_scheme,
            logs=logs,
            jobs=jobs,
        )
        return state, render_request(instance)

    def set_stock(self, product_id: str, cluster_id: str, free: int) -> None:
        self.catalog.set_stock(product_id, cluster_id, free)
        total = self.catalog.total[product_id, cluster_id]
        self._pending.append(("stock", f"{product_id}@{cluster_id}", {"total": total}))

    def set_speed(self, speed: float) -> None:
        self.clock.set_speed(speed)
        if self.on_plan is not None:
            self.on_plan()

    def table(self, name: str) -> dict[str, JsonObject]:
        return self.tables.setdefault(name, {})

    def put(self, table: str, key: str, record: JsonObject) -> None:
        self.table(table)[key] = record
        self._pending.append((table, key, record))

    def drop(self, table: str, key: str) -> None:
        self.table(table).pop(key, None)
        self._pending.append((table, key, None))

    def next_number(self, what: str) -> int:
        self.counters[what] += 1
        self._pending.append(("counter", what, {"count": self.counters[what]}))
        return self.counters[what]

    def new_id(self, what: str, size: int = 8) -> str:
        """Not seeded: an id from an earlier world must not match another object in this one."""
        self.next_number(what)
        return secrets.token_hex(size)

    def commit(self) -> None:
        """Store the changes of this request; after a kill there are all of them or none."""
        pending, self._pending = self._pending, []
        if self._journal is None or not pending:
            return
        pending.append(self._time_record())
        self._journal.append(pending)
        if self._journal.needs_rewrite:
            self._journal.rewrite(self._all_records())

    def close(self) -> None:
        if self._journal is not None:
            self.commit()
            self._journal.close()
            self._journal = None

    def _push_next(self, instance: Instance) -> None:
        if instance.steps:
            self._pushed += 1
            heapq.heappush(self._due, (instance.steps[0][0], self._pushed, instance, instance.steps[0]))
            if self.on_plan is not None:
                self.on_plan()

    def _restore(self) -> None:
        records = self._journal.read() if self._journal else []
        for table, key, record in records:
            self._load(table, key, record)
        if not records:
            for table, key, first in first_records(self.clock.wall()):
                self.put(table, key, first)
            self.counters["template"] = 107_671 + len(self.table("template"))
            self._pending.append(("counter", "template", {"count": self.counters["template"]}))
        for product in self.table("product").values():
            self.catalog.add(Product(**product))  # pyright: ignore[reportArgumentType]
        # Also for a state file from before worlds had ids.
        self._pending.append(("world", "", {"id": self.id}))
        for instance in sorted(self.instances.values(), key=lambda each: each.seq):
            if instance.listed:
                self.index.add(instance)
            if instance.holds_stock:
                self.catalog.taken[instance.product_id, instance.cluster_id] += instance.gpu_num
            self.meter.restore(instance)
            self._push_next(instance)
        account.restore(self)
        self.commit()

    def _load(self, table: str, key: str, record: JsonObject | None) -> None:
        match table, record:
            case "time", dict():
                # Time passed while the simulator was down, as at a real provider.
                down = max(0.0, self.clock.wall() - float(str(record["wall"])))
                self.clock.set_now(float(str(record["sim"])) + down * self.clock.speed)
            case "world", dict():
                self.id = str(record["id"])
            case "instance", None:
                self.instances.pop(key, None)
            case "instance", dict():
                self.instances[key] = Instance.load(record)
            case "counter", dict():
                self.counters[key] = int(str(record["count"]))
            case "made", dict():
                self.made[key] = int(str(record["count"]))
            case "stock", dict():
                product_id, _, cluster_id = key.partition("@")
                self.catalog.total[product_id, cluster_id] = int(str(record["total"]))
            case _, None:
                self.table(table).pop(key, None)
            case _, dict():
                self.table(table)[key] = record

    def _time_record(self) -> Record:
        return ("time", "", {"sim": self.clock.now(), "wall": self.clock.wall()})

    def _all_records(self) -> list[Record]:
        records: list[Record] = [("instance", each.id, each) for each in self.instances.values()]
        records.extend(("made", name, {"count": count}) for name, count in self.made.items())
        records.extend(("counter", what, {"count": count}) for what, count in self.counters.items())
        for (product, cluster), total in self.catalog.total.items():
            records.append(("stock", f"{product}@{cluster}", {"total": total}))
        for name, rows in self.tables.items():
            records.extend((name, key, record) for key, record in rows.items())
        records.append(("world", "", {"id": self.id}))
        records.append(self._time_record())
        return records
