"""How an instance moves from status to status: the commands, and the steps that time takes by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.novita.simulator.instances import Instance, Step, fraction, secret
from server.novita.simulator.statuses import STAYS
from server.novita.simulator.wire import Refusal, invalid_state, no_stock

if TYPE_CHECKING:
    from server.novita.simulator.world import World


def begin_create(world: World, instance: Instance, *, pull_fails: bool) -> None:
    passing = ["toCreate", "creating", "pulling"]
    # Not in the provider's documents, but met by others: some wait before they begin.
    if fraction(world.seed, instance.seq, "waits") < 0.25:
        passing.insert(0, "pending")
    _go(world, instance, passing, *(("exited", "pull-failed") if pull_fails else ("running", "run")))


def start(world: World, instance: Instance, *, pull_fails: bool = False) -> None:
    """Only an exited instance starts, and only if its GPUs are still to be had."""
    if instance.status != "exited":
        raise invalid_state()
    take_stock(world, instance)
    _clear_past(instance)
    # Now and then the node has lost the image meanwhile.
    lost = pull_fails or fraction(world.seed, instance.seq, instance.starts, "image") < 0.25
    passing = ["toStart", "starting", "pulling"] if lost else ["toStart", "starting"]
    _go(world, instance, passing, *(("exited", "pull-failed") if pull_fails else ("running", "run")))


def stop(world: World, instance: Instance) -> None:
    if not instance.is_running:
        raise invalid_state()
    _leave_running(world, instance, world.clock.wall())
    _go(world, instance, ["toStop", "stopping"], "exited", "exit")


def restart(world: World, instance: Instance) -> None:
    refuse_while_busy(instance)
    if not instance.is_running:
        raise invalid_state()
    _leave_running(world, instance, world.clock.wall())
    _go(world, instance, ["toRestart", "restarting"], "running", "run", keep_spot=True)


def remove(world: World, instance: Instance) -> None:
    """Legal in any status but for a subscription."""
    if instance.billing_mode == "monthly":
        raise Refusal(400, "PREPAID_INSTANCE_NOT_SUPPORT_RELEASE", "a subscription instance cannot be released")
    if instance.status in ("toRemove", "removing", "removed"):
        return
    _leave_running(world, instance, world.clock.wall())
    _go(world, instance, ["toRemove", "removing"], "removed", "remove")


def reset(world: World, instance: Instance) -> None:
    """Give it its new image on the same machine."""
    refuse_while_busy(instance)
    if instance.status not in ("running", "exited"):
        raise invalid_state()
    take_stock(world, instance)
    if instance.status == "exited":
        _clear_past(instance)
    _leave_running(world, instance, world.clock.wall())
    _go(world, instance, ["toReset", "resetting", "pulling"], "running", "run", keep_spot=True)


def check_migrate(world: World, instance: Instance) -> None:
    refuse_while_busy(instance)
    if instance.status not in ("running", "exited") or instance.spot_status in ("notified", "reclaiming"):
        raise invalid_state()
    # The new node must have room before the old one is given up.
    if world.catalog.free(instance.product_id, instance.cluster_id) < instance.gpu_num:
        raise Refusal(400, "MIGRATE_INSUFFICIENT_RESOURCE", "no other node has room")


def migrate(world: World, instance: Instance, job_id: str) -> None:
    """Move to another node of the same cluster; a reclaimed spot instance comes back this way."""
    take_stock(world, instance)
    _leave_running(world, instance, world.clock.wall())
    _clear_past(instance)
    instance.jobs.append(job_id)
    _go(world, instance, ["migrating", "pulling"], "running", "run")
    done = instance.steps[-1][0]
    world.plan(instance, [*instance.steps, (done, "", f"job:{job_id}")])


def freeze(world: World, instance: Instance) -> None:
    """The account is in arrears."""
    _leave_running(world, instance, world.clock.wall())
    _go(world, instance, ["freezing"], "exited", "exit")


def end_by_itself(world: World, instance: Instance, *, code: int) -> None:
    """The container's own process ended."""
    if not instance.is_running:
        raise invalid_state()
    if code:
        instance.error_state = "containerExited"
        instance.error_message = f"container exited with code {code}"
    _leave_running(world, instance, world.clock.wall())
    world.plan(instance, [(world.clock.now(), "exited", "exit"), *_kept(instance, keep_spot=False)])
    world.settle()


def fail_pull(world: World, instance: Instance) -> None:
    """The image cannot be had, for an instance on its way to running."""
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
    _go(world, instance, ["pulling"], "exited", "pull-failed")


def reclaim(world: World, instance: Instance, *, notice: float) -> None:
    """Take a spot instance back: notice, reclaiming, terminated. `notice` is in simulated seconds."""
    if not instance.is_running or instance.billing_mode != "spot" or instance.spot_status != "running":
        raise invalid_state()
    world.plan(instance, [(world.clock.now(), "", f"notify:{notice}"), *instance.steps])
    world.settle()


def take_stock(world: World, instance: Instance) -> None:
    if instance.holds_stock:
        return
    if not world.catalog.take(instance.product_id, instance.cluster_id, instance.gpu_num):
        raise no_stock()
    instance.holds_stock = True


def refuse_while_busy(instance: Instance) -> None:
    if instance.jobs:
        raise Refusal(400, "OPERATION_LIMIT", "a job of this instance is under way")


def take_step(world: World, instance: Instance, step: Step) -> None:
    """What happens to the instance by itself at that time."""
    at, status, effect = step
    what, _, detail = effect.partition(":")
    wall = world.clock.wall_at(at)
    if status and what != "run":
        world.set_status(instance, status)
    match what:
        case "run":
            _begin_running(world, instance, at, wall)
        case "exit":
            _end(world, instance, wall)
        case "pull-failed":
            instance.error_state = "pulling"
            instance.error_message = f"failed to pull image {instance.image_url}: manifest unknown"
            _end(world, instance, wall)
        case "remove":
            _end(world, instance, wall)
            _insert(instance, (at + STAYS["removed"], "", "forget"))
        case "forget":
            world.forget_instance(instance)
        case "list":
            instance.listed = True
            world.index.add(instance)
        case "job":
            if detail in instance.jobs:
                instance.jobs.remove(detail)
        case "ports":
            # Edited ports get their addresses while it runs.
            if instance.is_running and world.endpoints:
                world.endpoints.open(instance)
        case "notify":
            instance.spot_status = "notified"
            instance.spot_reclaim_time = int(world.clock.wall_at(at + float(detail)))
            _insert(instance, (at + float(detail), "", "reclaim"))
        case "reclaim":
            _leave_running(world, instance, wall)
            instance.spot_status = "reclaiming"
            world.set_status(instance, "stopping")
            instance.steps = [*_kept(instance, keep_spot=False), (at + STAYS["stopping"], "exited", "terminate")]
            instance.steps.sort(key=lambda each: each[0])
        case "terminate":
            instance.spot_status = "terminated"
            _end(world, instance, wall)
        case _:
            pass


def _go(
    world: World, instance: Instance, passing: list[str], end: str, effect: str, *, keep_spot: bool = False
) -> None:
    """Enter the first passing status now and plan the others and the end."""
    at = world.clock.now()
    steps = _kept(instance, keep_spot=keep_spot)
    world.set_status(instance, passing[0])
    for here, following in zip(passing, [*passing[1:], end], strict=True):
        spread = 0.75 + fraction(world.seed, instance.seq, instance.starts, here) / 2
        at += STAYS[here] * spread
        steps.append((at, following, effect if following == end else ""))
    world.plan(instance, steps)


def _kept(instance: Instance, *, keep_spot: bool) -> list[Step]:
    """Steps that a command does not call off."""
    kinds = ("list", "job", "notify", "reclaim") if keep_spot else ("list", "job")
    return [step for step in instance.steps if step[2].partition(":")[0] in kinds]


def _insert(instance: Instance, step: Step) -> None:
    instance.steps = sorted([*instance.steps, step], key=lambda each: each[0])


def _begin_running(world: World, instance: Instance, at: float, wall: float) -> None:
    instance.starts += 1
    instance.last_started_at = wall
    # One draw gives host, port and password, so all three change with each start.
    drawn = secret(world.seed, instance.id, instance.starts, size=16)
    host = f"proxy-{1 + int(drawn[8], 16) % 4}.{instance.cluster_id}.simulator.test"
    instance.ssh_command = f"ssh -p {30000 + int(drawn[:8], 16) % 30000} root@{host}"
    instance.ssh_password = drawn[16:]
    instance.running_since_sim = at
    world.set_status(instance, "running")
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


def _end(world: World, instance: Instance, wall: float) -> None:
    """Its GPUs are free for others."""
    instance.last_stopped_at = wall
    if instance.holds_stock:
        world.catalog.give_back(instance.product_id, instance.cluster_id, instance.gpu_num)
        instance.holds_stock = False


def _clear_past(instance: Instance) -> None:
    """A new run starts without the failures and reclaims of the one before."""
    instance.error_state = instance.error_message = ""
    instance.spot_status = ""
    instance.spot_reclaim_time = 0
