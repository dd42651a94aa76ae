"""All state of the simulated provider, moved on only when somebody looks."""

import heapq
import secrets
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from server.novita.simulator import lifecycle
from server.novita.simulator.catalog import Catalog
from server.novita.simulator.clock import WorldClock
from server.novita.simulator.faults import FATES, FaultKind, Faults
from server.novita.simulator.index import InstanceIndex
from server.novita.simulator.instances import Instance, Step
from server.novita.simulator.journal import Journal, Record
from server.novita.simulator.options import SimulatorOptions
from server.novita.simulator.render import render_request, render_state
from server.novita.simulator.seeds import first_records
from server.novita.simulator.wire import JsonObject, not_found

# Rendered instances kept; 0.9 KB each, so 120 MB when all of them have been looked at.
RENDERED_LIMIT = 131_072


@dataclass(slots=True)
class Fates:
    """What is to become of an instance; times in simulated seconds."""

    pull_fails: bool = False
    reclaim_after: float = -1
    listed_after: float = 0
    hidden: bool = False


class EndpointHost(Protocol):
    """Gives running instances addresses that answer."""

    def open(self, instance: Instance) -> None: ...
    def trim(self, instance: Instance) -> None: ...
    def close(self, instance: Instance) -> None: ...
    def listen_where_due(self) -> None: ...


class World:
    """One account at the simulated provider.

    Nothing here awaits, so each call is one indivisible step; `commit` writes it down before it is answered.
    Time-driven steps wait in a heap and are taken in order at the next look (`settle`), so a hundred
    thousand instances need no timers. They are not written down: they follow from what was.
    """

    def __init__(self, options: SimulatorOptions, clock: WorldClock | None = None) -> None:
        self.options = options
        self.seed = options.seed
        self.clock = clock or WorldClock(options.speed)
        self.catalog = Catalog(seed=options.seed, drift=options.price_drift, stock_factor=options.stock_factor)
        self.faults = Faults(options.faults, seed=options.seed)
        self.instances: dict[str, Instance] = {}
        self.index = InstanceIndex()
        # template, auth, storage, network, job, prewarm: plain records by id.
        self.tables: dict[str, dict[str, JsonObject]] = {}
        self.counters: Counter[str] = Counter()
        # How many instances were ever made under each name, deleted ones included.
        self.made: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        # (instance id, container port) to how its http endpoint misbehaves, see `Endpoints.mode`.
        self.endpoint_modes: dict[tuple[str, int], str] = {}
        self.endpoints: EndpointHost | None = None
        # Called when a step was planned that may be earlier than all others.
        self.on_plan: Callable[[], None] | None = None
        # Where log addresses point; the running simulator knows its own URL.
        self.public_url = "http://127.0.0.1"
        self._due: list[tuple[float, int, Instance, Step]] = []
        self._pushed = 0
        self._rendered: dict[str, tuple[bytes, bytes]] = {}
        self._journal = Journal(options.state_file) if options.state_file else None
        self._pending: list[Record] = []
        self._restore()

    def settle(self) -> float:
        """Take every step whose time has come, in the order of their times. Returns the simulated time."""
        now = self.clock.now()
        while self._due and self._due[0][0] <= now:
            _, _, instance, step = heapq.heappop(self._due)
            # A command may have replaced the plan since; only the step that is still first counts.
            if instance.steps and instance.steps[0] is step:
                del instance.steps[0]
                lifecycle.take_step(self, instance, step)
                self._rendered.pop(instance.id, None)
                self._push_next(instance)
        if self.endpoints is not None:
            self.endpoints.listen_where_due()
        return now

    def next_due(self) -> float | None:
        return self._due[0][0] if self._due else None

    def plan(self, instance: Instance, steps: list[Step]) -> None:
        """Replace what is to come for an instance."""
        instance.steps = sorted(steps, key=lambda step: step[0])
        self._push_next(instance)
        self.changed(instance)

    def changed(self, instance: Instance) -> None:
        """Remember to write the instance down, and to show it anew."""
        self._rendered.pop(instance.id, None)
        self._pending.append(("instance", instance.id, instance))

    def add_instance(self, instance: Instance) -> None:
        self.instances[instance.id] = instance
        self.made[instance.name] += 1
        self._pending.append(("made", instance.name, {"count": self.made[instance.name]}))

    def forget_instance(self, instance: Instance) -> None:
        self.index.remove(instance)
        self.instances.pop(instance.id, None)
        self._rendered.pop(instance.id, None)
        self._pending.append(("instance", instance.id, None))

    def fates(self, route: str) -> Fates:
        """What the faults have in store for the instance that this call makes or starts."""
        fates = Fates()
        for fault in self.faults.strike(route, FATES) if self.faults.active else ():
            match fault.kind:
                case FaultKind.PULL_FAILURE:
                    fates.pull_fails = True
                case FaultKind.SPOT_RECLAIM:
                    fates.reclaim_after = fault.seconds * self.clock.speed
                case _:
                    fates.listed_after = fault.seconds * self.clock.speed
                    fates.hidden = fault.hide_from_get
        return fates

    def set_status(self, instance: Instance, status: str) -> None:
        before, instance.status = instance.status, status
        self.index.move(instance, before)

    def instance(self, instance_id: str) -> Instance:
        instance = self.instances.get(instance_id)
        if instance is None:
            raise not_found("instance")
        return instance

    def show(self, instances: Iterable[Instance], before: bytes = b"", after: bytes = b"") -> bytes:
        """The instances as JSON objects with commas between them.

        A page of a hundred must cost less than half a millisecond, so the long unchanging part of each is kept
        and only its last field, the time it has run, is written anew; and all is put together in one copy.
        """
        wall = self.clock.wall()
        parts = [before]
        for instance in instances:
            used = instance.used_seconds
            if instance.status == "running":
                used += max(0.0, wall - instance.last_started_at)
            parts.extend(self._rendered.get(instance.id) or self._render(instance))
            parts.append(b'%d"},' % used)
        parts[-1] = parts[-1].removesuffix(b",")
        parts.append(after)
        return b"".join(parts)

    def _render(self, instance: Instance) -> tuple[bytes, bytes]:
        if len(self._rendered) >= RENDERED_LIMIT:
            self._rendered.clear()
        jobs: list[JsonObject] = [{"Id": job, "type": self.table("job")[job]["type"]} for job in instance.jobs]
        logs = f"{self.public_url}/control/instances"
        pieces = (render_state(instance, logs=logs, jobs=jobs), render_request(instance))
        self._rendered[instance.id] = pieces
        return pieces

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
        """Not seeded: whoever remembers an id of an earlier world must not find a stranger under it in this one."""
        self.next_number(what)
        return secrets.token_hex(size)

    def commit(self) -> None:
        """Write down what this call changed; a killed simulator then finds all of it or nothing."""
        pending, self._pending = self._pending, []
        if self._journal is None or not pending:
            return
        pending.append(self._time_record())
        self._journal.append(pending)
        if self._journal.is_long:
            self._journal.rewrite(self._everything())

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
        for instance in sorted(self.instances.values(), key=lambda each: each.seq):
            if instance.listed:
                self.index.add(instance)
            if instance.holds_stock:
                self.catalog.taken[instance.product_id, instance.cluster_id] += instance.gpu_num
            self._push_next(instance)
        self.commit()

    def _load(self, table: str, key: str, record: JsonObject | None) -> None:
        match table, record:
            case "time", dict():
                # Time went on while the simulator was down, just as it does at a real provider.
                down = max(0.0, self.clock.wall() - float(str(record["wall"])))
                self.clock.set_now(float(str(record["sim"])) + down * self.clock.speed)
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

    def _everything(self) -> list[Record]:
        records: list[Record] = [("instance", each.id, each) for each in self.instances.values()]
        records.extend(("made", name, {"count": count}) for name, count in self.made.items())
        records.extend(("counter", what, {"count": count}) for what, count in self.counters.items())
        for (product, cluster), total in self.catalog.total.items():
            records.append(("stock", f"{product}@{cluster}", {"total": total}))
        for name, rows in self.tables.items():
            records.extend((name, key, record) for key, record in rows.items())
        records.append(self._time_record())
        return records
