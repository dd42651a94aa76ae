"""HTTP API for tests: read the state, inject faults, change stock and speed. No key, outside the provider's prefix."""

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from types import NoneType
from typing import cast

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from server.simulator import lifecycle, validation
from server.simulator.billing.account import set_balance
from server.simulator.billing.bills import billed_times
from server.simulator.catalog import Product
from server.simulator.dialect import BadDialect
from server.simulator.faults import Fault, FaultKind
from server.simulator.requests import ApiRequest, JsonObject, ProviderRefusal, bad_param
from server.simulator.routes.jobs import fail_job
from server.simulator.routes.logs import LOGS, add_line, serve_log
from server.simulator.world import World

FOR_EVER = 1e12  # seconds since 1970
Action = Callable[[JsonObject, str], object]
# "" restores the normal behaviour.
ENDPOINT_MODES = ("", "ok", "badGateway", "errorPage", "hang", "reset")
# What the log address of an instance serves.
LOG_PATH = "/instances/{id}/log/{which}"


def control_routes(world: World) -> list[BaseRoute]:
    routes: list[BaseRoute] = [
        Route(path, _endpoint(world, action), methods=[method])
        for (method, path), action in control_actions(world).items()
    ]
    return [*routes, Route(LOG_PATH, serve_log(world), methods=["GET"])]


def control_actions(world: World) -> dict[tuple[str, str], Action]:
    """What can be done, by method and path; a scenario does it, too."""
    control = ControlApi(world)
    return {
        ("GET", "/state"): control.state,
        ("GET", "/machines"): control.machines,
        ("GET", "/volumes"): control.volumes,
        ("GET", "/bills"): lambda body, key: {"bills": billed_times(world)},
        ("GET", "/faults"): control.show_faults,
        ("POST", "/faults"): control.set_faults,
        ("DELETE", "/faults"): control.clear_faults,
        ("GET", "/dialect"): control.show_dialect,
        ("POST", "/dialect"): control.set_dialect,
        ("DELETE", "/dialect"): control.reset_dialect,
        ("POST", "/products"): control.add_product,
        ("GET", "/stock"): control.show_stock,
        ("POST", "/stock"): control.set_stock,
        ("GET", "/plan"): control.show_plan,
        ("POST", "/plan"): control.set_plan,
        ("POST", "/balance"): control.set_balance,
        ("POST", "/speed"): control.set_speed,
        ("POST", "/reclaim"): control.reclaim,
        ("POST", "/lose"): control.lose,
        ("POST", "/instances/{id}/fail-pull"): control.fail_pull,
        ("POST", "/instances/{id}/exit"): control.exit_by_itself,
        ("POST", "/instances/{id}/freeze"): control.freeze,
        ("POST", "/instances/{id}/endpoint"): control.set_endpoint,
        ("POST", "/instances/{id}/log"): control.append_log,
        ("POST", "/instances/{id}/load"): control.set_load,
        ("POST", "/jobs/{id}/fail"): control.fail_job,
    }


class ControlApi:
    def __init__(self, world: World) -> None:
        self._world = world

    def state(self, body: JsonObject, key: str) -> object:
        world = self._world
        return {
            "world": world.id,
            "instancesMade": world.made.total(),
            "createsAccepted": world.made.total(),
            "madeByName": dict(world.made),
            "volumesMade": world.counters["storage"],
            "instances": len(world.instances),
            "byStatus": world.index.counts(),
            "calls": dict(world.calls),
            "speed": world.clock.speed,
            "faults": len(world.faults.active),
        }

    def machines(self, body: JsonObject, key: str) -> object:
        """All instances, also those that the list does not show yet; no fault applies here."""
        return {
            "machines": [
                {
                    "id": each.id,
                    "name": each.name,
                    "status": each.status,
                    "rootfsSize": each.rootfs_size,
                    "pricePerHour": self._world.meter.price_now(each),
                    "listed": each.listed and each.hidden_until_sim <= self._world.clock.now(),
                }
                for each in self._world.instances.values()
            ]
        }

    def volumes(self, body: JsonObject, key: str) -> object:
        """All network storages, also those that the list does not show yet, with the ids of the instances that have
        them."""
        holders = [(volume[2], each.id) for each in self._world.instances.values() for volume in each.volumes]
        return {
            "volumes": [
                {**record, "instances": [holder for storage, holder in holders if storage == key]}
                for key, record in self._world.table("storage").items()
            ]
        }

    def show_faults(self, body: JsonObject, key: str) -> object:
        return {"faults": [_fault_to_json(fault) for fault in self._world.faults.active]}

    def set_faults(self, body: JsonObject, key: str) -> object:
        """Replace the faults; with `"add": true` add to them."""
        faults = [fault_from(item) for item in validation.objects(body, "faults", most=1000)]
        if validation.flag(body, "add"):
            self._world.faults.add(faults)
        else:
            self._world.faults.set(faults)
        return self.show_faults(body, key)

    def clear_faults(self, body: JsonObject, key: str) -> object:
        self._world.faults.clear()
        return {"faults": []}

    def show_dialect(self, body: JsonObject, key: str) -> object:
        return self._world.dialect.to_json()

    def set_dialect(self, body: JsonObject, key: str) -> object:
        """Change the named fields; the others keep their values."""
        try:
            self._world.set_dialect(self._world.dialect.changed(body))
        except BadDialect as error:
            raise bad_param(str(error)) from None
        return self.show_dialect(body, key)

    def reset_dialect(self, body: JsonObject, key: str) -> object:
        """Back to the dialect that the simulator was started with."""
        self._world.set_dialect(self._world.options.dialect)
        return self.show_dialect(body, key)

    def add_product(self, body: JsonObject, key: str) -> object:
        """Sell one more GPU product, also one with the name of another in the same cluster; `stock` has the number of
        GPUs by cluster id."""
        stock = validation.inner(body, "stock") or {}
        unknown = [cluster for cluster in stock if cluster not in self._world.catalog.clusters]
        if not stock or unknown:
            raise bad_param("stock must have a number of GPUs by cluster id", "stock")
        product = Product(
            id=validation.text(body, "id", least=1),
            name=validation.text(body, "name", least=1),
            cpu_per_gpu=validation.number(body, "cpuPerGpu", least=1, most=1000, default=16),
            memory_per_gpu=validation.number(body, "memoryPerGpu", least=1, most=10_000, default=60),
            price=validation.number(body, "price", least=1, most=10**9),
            spot_price=validation.number(body, "spotPrice", least=0, most=10**9, default=0),
            monthly_price=validation.number(body, "monthlyPrice", least=0, most=10**12, default=0),
            stock={cluster: validation.number(stock, cluster, least=0, most=10_000_000) for cluster in stock},
        )
        if product.id in self._world.catalog.products:
            raise bad_param("a product has this id", "id")
        self._world.catalog.add(product)
        self._world.put("product", product.id, asdict(product))
        return {"id": product.id, "products": len(self._world.catalog.products)}

    def show_stock(self, body: JsonObject, key: str) -> object:
        catalog = self._world.catalog
        return {
            "stock": [
                {"productId": product, "clusterId": cluster, "free": catalog.free(product, cluster), "total": total}
                for (product, cluster), total in catalog.total.items()
            ]
        }

    def set_stock(self, body: JsonObject, key: str) -> object:
        """Make `free` GPUs free; without a product or a cluster, everywhere."""
        free = validation.number(body, "free", least=0, most=10_000_000)
        product_id, cluster_id = validation.text(body, "productId"), validation.text(body, "clusterId")
        matching = [
            place
            for place in self._world.catalog.total
            if product_id in ("", place[0]) and cluster_id in ("", place[1])
        ]
        if not matching:
            raise bad_param("no such product in that cluster", "productId")
        for product, cluster in matching:
            self._world.set_stock(product, cluster, free)
        return self.show_stock(body, key)

    def show_plan(self, body: JsonObject, key: str) -> object:
        """What is planned, and the record of every change of stock and price so far."""
        return self._world.market.to_json()

    def set_plan(self, body: JsonObject, key: str) -> object:
        """Change stock and price at simulated times: `at` is in seconds from now; `price` is optional."""
        self._world.market.add(validation.objects(body, "plan", most=10_000))
        if self._world.on_plan is not None:
            self._world.on_plan()
        return self.show_plan(body, key)

    def set_balance(self, body: JsonObject, key: str) -> object:
        """In ten-thousandths of a dollar. Machines are charged to it, unless `charged` is false. Without balance,
        creates and starts are refused, and machines are frozen."""
        available = validation.number(body, "available", least=-(10**12), most=10**12)
        set_balance(self._world, available, is_charged=validation.flag(body, "charged", default=True))
        return {"available": available}

    def set_speed(self, body: JsonObject, key: str) -> object:
        speed = body.get("speed")
        if not isinstance(speed, int | float) or isinstance(speed, bool) or not 0 < speed <= 1_000_000:
            raise bad_param("speed must be a positive number", "speed")
        self._world.set_speed(float(speed))
        return {"speed": self._world.clock.speed}

    def reclaim(self, body: JsonObject, key: str) -> object:
        """One spot instance, or all that run in a region, within so many seconds."""
        world, notice = self._world, body.get("noticeSeconds")
        real = isinstance(notice, int | float)
        seconds = float(notice) * world.clock.speed if real else world.options.spot_notice
        if cluster := validation.text(body, "clusterId"):
            within = validation.number(body, "withinSeconds", least=0, most=86_400, default=0) * world.clock.speed
            found = lifecycle.reclaim_region(world, cluster, notice=seconds, within=within)
            return {"reclaimed": [each.id for each in found]}
        instance = world.instance(validation.text(body, "instanceId", least=1))
        lifecycle.reclaim(world, instance, notice=seconds)
        return orjson.Fragment(world.render([instance]))

    def lose(self, body: JsonObject, key: str) -> object:
        """Forget a machine without notice, as if its node had failed."""
        instance = self._world.instance(validation.text(body, "instanceId", least=1))
        lifecycle.lose(self._world, instance)
        return {"lost": instance.id}

    def fail_pull(self, body: JsonObject, key: str) -> object:
        instance = self._world.instance(key)
        lifecycle.fail_pull(self._world, instance)
        return orjson.Fragment(self._world.render([instance]))

    def exit_by_itself(self, body: JsonObject, key: str) -> object:
        instance = self._world.instance(key)
        lifecycle.exit_by_itself(
            self._world, instance, code=validation.number(body, "code", least=0, most=255, default=1)
        )
        return orjson.Fragment(self._world.render([instance]))

    def freeze(self, body: JsonObject, key: str) -> object:
        instance = self._world.instance(key)
        lifecycle.freeze(self._world, instance)
        return orjson.Fragment(self._world.render([instance]))

    def append_log(self, body: JsonObject, key: str) -> object:
        """Add a line to a log; `which` is instance (the container's) or system."""
        instance = self._world.instance(key)
        which = validation.choice(body, "which", LOGS, default=LOGS[0])
        return {"lines": add_line(self._world, instance, which, validation.text(body, "text", most=2_000_000))}

    def set_endpoint(self, body: JsonObject, key: str) -> object:
        """Make an http port fail in the given way; without a mode it works again."""
        instance = self._world.instance(key)
        port = validation.number(body, "port", least=1, most=65535)
        mode = validation.text(body, "mode")
        if mode not in ENDPOINT_MODES and not (mode.isdigit() and 200 <= int(mode) <= 599):
            raise bad_param(f"mode must be a status number or one of {', '.join(ENDPOINT_MODES)}", "mode")
        self._world.endpoint_modes[instance.id, port] = mode
        return {"port": port, "mode": mode}

    def set_load(self, body: JsonObject, key: str) -> object:
        """Set the GPUs' utilisation, or make it "missing", from one wall time to another, past or future. Without a
        time: always. Later calls override earlier ones."""
        instance = self._world.instance(key)
        percent = body.get("gpuPercent")
        if percent != "missing" and (not isinstance(percent, int | float) or not 0 <= percent <= 100):
            raise bad_param('gpuPercent must be 0 to 100 or "missing"', "gpuPercent")
        since, until = body.get("from", 0), body.get("to", FOR_EVER)
        if not isinstance(since, int | float) or not isinstance(until, int | float) or since > until:
            raise bad_param("from and to must be times in seconds", "from")
        load = float(percent) if isinstance(percent, int | float) else None
        self._world.loads.setdefault(instance.id, []).append((float(since), float(until), load))
        return {"loads": len(self._world.loads[instance.id])}

    def fail_job(self, body: JsonObject, key: str) -> object:
        """Make a job that has not ended fail, with this message."""
        return fail_job(self._world, key, validation.text(body, "message", default="the job failed"))


# The fields of a fault in JSON, with their types.
FAULT_FIELDS: dict[str, tuple[type, ...]] = {
    "kind": (str,),
    "routes": (str, list),
    "times": (int, NoneType),
    "probability": (int, float),
    "skip": (int,),
    "seconds": (int, float),
    "jitter": (int, float),
    "retry_after": (str, int, float, NoneType),
    "status": (int, NoneType),
    "reason": (str,),
    "message": (str,),
    "body": (str,),
    "word": (str,),
    "hide_from_get": (bool,),
}


def fault_from(item: JsonObject) -> Fault:
    """A fault from JSON. Unknown fields are refused: with a misspelled one a test would pass without the fault."""
    names = {"retryAfter": "retry_after", "hideFromGet": "hide_from_get"}
    values = {names.get(name, name): value for name, value in item.items()}
    for name, value in values.items():
        if name not in FAULT_FIELDS:
            raise bad_param(f"unknown field of a fault: {name}", name)
        if not isinstance(value, FAULT_FIELDS[name]):
            raise bad_param(f"wrong type of a fault's {name}", name)
    if values.get("kind") not in list(FaultKind):
        raise bad_param(f"kind must be one of {', '.join(FaultKind)}", "kind")
    values["kind"] = FaultKind(str(values["kind"]))
    routes = values.get("routes", "*")
    values["routes"] = (routes,) if isinstance(routes, str) else tuple(cast(list[str], routes))
    if values.get("retry_after") is not None:
        values["retry_after"] = str(values["retry_after"])
    return Fault(**values)  # pyright: ignore[reportArgumentType]


def _fault_to_json(fault: Fault) -> JsonObject:
    shown = asdict(fault)
    shown.pop("until")
    return shown


def _endpoint(world: World, action: Action) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        provider_request = ApiRequest("", raw_body=await request.body())
        try:
            world.advance()
            result = action(provider_request.body(), str(request.path_params.get("id", "")))
        except ProviderRefusal as refusal:
            return Response(refusal.body(), refusal.status, media_type="application/json")
        finally:
            world.commit()
        return Response(orjson.dumps(result), media_type="application/json")

    return endpoint
