"""Status changes of an instance: the commands, and the steps that happen as time passes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.simulator.models import Instance, MachineStep, fraction, secret
from server.simulator.requests import ProviderRefusal, invalid_state, no_stock
from server.simulator.statuses import STATUS_SECONDS

# Simulated seconds until edited ports are open.
EDIT_SECONDS = 2.0

if TYPE_CHECKING:
    from server.simulator.world import World


def begin_create(world: World, instance: Instance, *, pull_fails: bool) -> None:
    passing = ["toCreate", "creating", "pulling"]
    # Undocumented, but seen by other clients: some are pending first.
    if fraction(world.seed, instance.seq, "waits") < 0.25:
        passing.insert(0, "pending")
    _plan_run(world, instance, passing, pull_fails=pull_fails)


def start(world: World, instance: Instance, *, pull_fails: bool = False) -> None:
    """Only an exited instance can start, and only if GPUs are in stock."""
    if instance.status != "exited":
        raise invalid_state()
    if instance.spot_status == "terminated" and not world.dialect.starts_reclaimed:
        raise ProviderRefusal(400, "SPOT_INSTANCE_RECLAIMED", "a reclaimed spot instance cannot be started")
    take_stock(world, instance)
    _clear_failure(instance)
    # Sometimes the node no longer has the image.
    lost = pull_fails or fraction(world.seed, instance.seq, instance.starts, "image") < 0.25
    passing = ["toStart", "starting", "pulling"] if lost else ["toStart", "starting"]
    _plan_run(world, instance, passing, pull_fails=pull_fails)


def stop(world: World, instance: Instance) -> None:
    if not instance.is_running:
        raise invalid_state()
    _leave_running(world, instance, world.clock.wall())
    _plan_transition(world, instance, ["toStop", "stopping"], "exited", "exit")


def restart(world: World, instance: Instance) -> None:
    refuse_while_busy(instance)
    if not instance.is_running:
        raise invalid_state()
    _leave_running(world, instance, world.clock.wall())
    _plan_transition(world, instance, ["toRestart", "restarting"], "running", "run", keep_spot=True)


def remove(world: World, instance: Instance) -> None:
    """Allowed in any status, but not for a subscription."""
    if instance.billing_mode == "monthly":
        raise ProviderRefusal(400, "PREPAID_INSTANCE_NOT_SUPPORT_RELEASE", "a subscription instance cannot be released")
    if instance.status in ("toRemove", "removing", "removed"):
        return
    _leave_running(world, instance, world.clock.wall())
    if world.dialect.deletes_at_once:
        _release_stock(world, instance, world.clock.wall())
        world.plan(instance, [])
        world.forget_instance(instance)
        return
    _plan_transition(world, instance, ["toRemove", "removing"], "removed", "remove")


def reset(world: World, instance: Instance) -> None:
    """Start with a new image on the same machine."""
    refuse_while_busy(instance)
    if instance.status not in ("running", "exited"):
        raise invalid_state()
    take_stock(world, instance)
    if instance.status == "exited":
        _clear_failure(instance)
    _leave_running(world, instance, world.clock.wall())
    _plan_transition(world, instance, ["toReset", "resetting", "pulling"], "running", "run", keep_spot=True)


def check_migrate(world: World, instance: Instance) -> None:
    refuse_while_busy(instance)
    if instance.status not in ("running", "exited") or instance.spot_status in ("notified", "reclaiming"):
        raise invalid_state()
    # The new node must have stock before the old one is released.
    if world.catalog.free(instance.product_id, instance.cluster_id) < instance.gpu_num:
        raise ProviderRefusal(400, "MIGRATE_INSUFFICIENT_RESOURCE", "no other node has room")


def migrate(world: World, instance: Instance, job_id: str) -> None:
    """Move to another node of the same cluster; also restores a reclaimed spot instance."""
    take_stock(world, instance)
    _leave_running(world, instance, world.clock.wall())
    _clear_failure(instance)
    if not world.dialect.migrate_keeps_disk:
        instance.disk += 1
    instance.jobs.append(job_id)
    _plan_transition(world, instance, ["migrating", "pulling"], "running", "run")
    done = instance.steps[-1][0]
    world.plan(instance, [*instance.steps, (done, "", f"job:{job_id}")])


def edit(world: World, instance: Instance, *, more_gb: int, ports: list[tuple[int, str]] | None) -> None:
    """Grow the disk and set the ports: at once, or after the dialect's delay. Each growth adds to those before."""
    at = world.clock.now() + world.dialect.edit_delay * world.clock.speed
    steps: list[MachineStep] = [(at, "", f"grow:{more_gb}")] if more_gb else []
    if ports is not None and ports != instance.ports:
        steps.append((at, "", "set-ports:" + ",".join(f"{port}/{kind}" for port, kind in ports)))
    world.plan(instance, [*instance.steps, *steps])
    world.advance()


def planned_growth(instance: Instance) -> int:
    """GB of accepted edits that are not visible yet."""
    effects = [effect.partition(":") for _, _, effect in instance.steps]
    return sum(int(detail) for what, _, detail in effects if what == "grow")


def freeze(world: World, instance: Instance) -> None:
    """Stop because the account is in arrears."""
    _leave_running(world, instance, world.clock.wall())
    _plan_transition(world, instance, ["freezing"], "exited", "exit")


def exit_by_itself(world: World, instance: Instance, *, code: int) -> None:
    """The container's own process ended."""
    if not instance.is_running:
        raise invalid_state()
    instance.error_state = "containerExited"
    instance.error_message = f"container exited with code {code}"
    _leave_running(world, instance, world.clock.wall())
    world.plan(instance, [(world.clock.now(), "exited", "exit"), *_steps_to_keep(instance, keep_spot=False)])
    world.advance()


def fail_pull(world: World, instance: Instance) -> None:
    """Fail the image pull of an instance that is starting."""
    if instance.status not in (
        "pending",
        "toCreate",
        "creating",
        "pulling",
        "toStart",
        "starting",
        "toReset",
        "resetting",
    ):
        raise invalid_state()
    _plan_run(world, instance, ["pulling"], pull_fails=True)


def reclaim(world: World, instance: Instance, *, notice: float, after: float = 0) -> None:
    """Reclaim a spot instance: notified, reclaiming, terminated. `notice` and `after` are in simulated seconds."""
    if not _is_reclaimable(instance):
        raise invalid_state()
    step = (world.clock.now() + after, "", f"notify:{notice}")
    world.plan(instance, sorted([step, *instance.steps], key=lambda each: each[0]))
    world.advance()


def reclaim_region(world: World, cluster_id: str, *, notice: float, within: float) -> list[Instance]:
    """Reclaim every spot instance that runs in a region, one after the other within these simulated seconds."""
    found = [each for each in world.instances.values() if each.cluster_id == cluster_id and _is_reclaimable(each)]
    for number, instance in enumerate(found):
        reclaim(world, instance, notice=notice, after=within * number / len(found))
    return found


def _is_reclaimable(instance: Instance) -> bool:
    return instance.is_running and instance.billing_mode == "spot" and instance.spot_status == "running"


def lose(world: World, instance: Instance) -> None:
    """Gone without notice or trace, as after a failure of its node."""
    wall = world.clock.wall()
    _leave_running(world, instance, wall)
    _release_stock(world, instance, wall)
    world.plan(instance, [])
    world.forget_instance(instance)


def take_stock(world: World, instance: Instance) -> None:
    if instance.holds_stock:
        return
    if not world.catalog.take(instance.product_id, instance.cluster_id, instance.gpu_num):
        raise no_stock()
    instance.holds_stock = True


def refuse_while_busy(instance: Instance) -> None:
    if instance.jobs:
        raise ProviderRefusal(400, "OPERATION_LIMIT", "a job of this instance is under way")


def apply_step(world: World, instance: Instance, step: MachineStep) -> None:
    """Apply a planned step when its time has come."""
    at, status, effect = step
    what, _, detail = effect.partition(":")
    wall = world.clock.wall_at(at)
    if status and what != "run":
        world.set_status(instance, status, wall=wall)
    match what:
        case "run":
            _begin_running(world, instance, at, wall)
        case "exit":
            _release_stock(world, instance, wall)
        case "pull-failed":
            instance.error_state = world.dialect.failed_pull_state
            instance.error_message = world.dialect.failed_pull_message.replace("{image}", instance.image_url)
            _release_stock(world, instance, wall)
            if status == "removed":
                _plan_forgetting(world, instance, at)
        case "remove":
            _release_stock(world, instance, wall)
            _plan_forgetting(world, instance, at)
        case "forget":
            world.forget_instance(instance)
        case "list":
            instance.listed = True
            world.index.add(instance)
        case "job":
            if detail in instance.jobs:
                instance.jobs.remove(detail)
        case "grow":
            instance.rootfs_size += int(detail)
        case "set-ports":
            instance.ports = [(int(port), kind) for port, _, kind in (each.partition("/") for each in _words(detail))]
            # Removed ports close at once; new ones get an address when the change has reached the node.
            if world.endpoints and instance.is_running:
                world.endpoints.trim(instance)
            _insert(instance, (at + EDIT_SECONDS, "", "ports"))
        case "ports":
            # Edited ports get addresses while it runs.
            if instance.is_running and world.endpoints:
                world.endpoints.open(instance)
        case "notify":
            instance.spot_status = "notified"
            instance.spot_reclaim_time = int(world.clock.wall_at(at + float(detail)))
            _insert(instance, (at + float(detail), "", "reclaim"))
        case "reclaim":
            _leave_running(world, instance, wall)
            instance.spot_status = "reclaiming"
            world.set_status(instance, "stopping", wall=wall)
            instance.steps = [
                *_steps_to_keep(instance, keep_spot=False),
                (at + STATUS_SECONDS["stopping"], "exited", "terminate"),
            ]
            instance.steps.sort(key=lambda each: each[0])
        case "terminate":
            instance.spot_status = "terminated"
            _release_stock(world, instance, wall)
        case _:
            pass


def _plan_run(world: World, instance: Instance, passing: list[str], *, pull_fails: bool) -> None:
    """Through these statuses to running, or to the end of a failed image pull."""
    end = (world.dialect.failed_pull_status, "pull-failed") if pull_fails else ("running", "run")
    _plan_transition(world, instance, passing, *end)


def _plan_transition(
    world: World, instance: Instance, passing: list[str], end: str, effect: str, *, keep_spot: bool = False
) -> None:
    """Enter the first transient status now and plan the others and the final one."""
    at = world.clock.now()
    steps = _steps_to_keep(instance, keep_spot=keep_spot)
    world.set_status(instance, passing[0])
    for here, following in zip(passing, [*passing[1:], end], strict=True):
        spread = 0.75 + fraction(world.seed, instance.seq, instance.starts, here) / 2
        at += STATUS_SECONDS[here] * spread
        steps.append((at, following, effect if following == end else ""))
    world.plan(instance, steps)


def _steps_to_keep(instance: Instance, *, keep_spot: bool) -> list[MachineStep]:
    """Steps that a command does not cancel."""
    kinds = ("list", "job", "grow", "set-ports", *(("notify", "reclaim") if keep_spot else ()))
    return [step for step in instance.steps if step[2].partition(":")[0] in kinds]


def _words(text: str) -> list[str]:
    return text.split(",") if text else []


def _plan_forgetting(world: World, instance: Instance, at: float) -> None:
    """How long `removed` is shown before the instance is not found."""
    shown = world.dialect.removed_shown
    seconds = STATUS_SECONDS["removed"] if shown < 0 else shown * world.clock.speed
    _insert(instance, (at + seconds, "", "forget"))


def _insert(instance: Instance, step: MachineStep) -> None:
    instance.steps = sorted([*instance.steps, step], key=lambda each: each[0])


def _begin_running(world: World, instance: Instance, at: float, wall: float) -> None:
    instance.starts += 1
    instance.last_started_at = wall
    # Host, port and password come from one seeded value, so all three change with each start.
    drawn = secret(world.seed, instance.id, instance.starts, size=16)
    host = f"proxy-{1 + int(drawn[8], 16) % 4}.{instance.cluster_id}.simulator.test"
    instance.ssh_command = f"ssh -p {30000 + int(drawn[:8], 16) % 30000} root@{host}"
    instance.ssh_password = drawn[16:]
    instance.running_since_sim = at
    world.set_status(instance, "running", wall=wall)
    if instance.billing_mode == "spot" and not instance.spot_status:
        instance.spot_status = "running"
        if instance.reclaim_after_sim >= 0:
            _insert(instance, (at + instance.reclaim_after_sim, "", f"notify:{world.options.spot_notice}"))
            instance.reclaim_after_sim = -1
    if world.endpoints:
        world.endpoints.open(instance)


def _leave_running(world: World, instance: Instance, wall: float) -> None:
    if not instance.is_running:
        return
    instance.used_seconds += max(0.0, wall - instance.last_started_at)
    instance.endpoints = {}
    if world.endpoints:
        world.endpoints.close(instance)


def _release_stock(world: World, instance: Instance, wall: float) -> None:
    """Return its GPUs to the stock."""
    instance.last_stopped_at = wall
    if instance.holds_stock:
        world.catalog.give_back(instance.product_id, instance.cluster_id, instance.gpu_num)
        instance.holds_stock = False


def _clear_failure(instance: Instance) -> None:
    """A new run starts without the failure or reclaim of the last one."""
    instance.error_state = instance.error_message = ""
    instance.spot_status = ""
    instance.spot_reclaim_time = 0
