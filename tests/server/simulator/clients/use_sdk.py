"""Uses a provider's account through the PyPI package `novita-sdk`, whose models check every answer.

Runs in an environment of its own: python use_sdk.py URL
"""

import sys
import time
from typing import Any

import novita.generated.models as sent
from novita import NovitaClient
from novita.exceptions import BadRequestError, NotFoundError

SECONDS = 10
PRODUCT, CLUSTER = "4090.16c62g", "us-ca-6"


def main(url: str) -> None:
    gpu = NovitaClient("sk_any", base_url=url).gpu
    assert CLUSTER in [each.id for each in gpu.clusters.list()]
    offers = gpu.products.list(cluster_id=CLUSTER, gpu_num=1, product_name="4090", billing_method="spot")
    assert PRODUCT in [each.id for each in offers]
    assert gpu.products.list_cpu()[0].cpu_num > 0

    use_templates(gpu)
    auth_id, storage_id, network_id = make_auth(gpu), make_storage(gpu), make_network(gpu)
    instance_id = make_instance(gpu, auth_id, storage_id, network_id)
    assert "in use" in refused(gpu.storages.delete, storage_id)
    change_instance(gpu, instance_id, storage_id)
    save_image(gpu, instance_id, auth_id)
    gpu.instances.migrate(instance_id)
    reach(gpu, instance_id, "running")
    prewarm(gpu, auth_id)

    gpu.instances.delete(instance_id)
    wait(lambda: is_gone(gpu.instances.get, instance_id))
    gpu.storages.delete(storage_id)
    gpu.networks.delete(network_id)
    gpu.registries.delete(auth_id)
    assert gpu.instances.list() == gpu.storages.list() == gpu.networks.list() == []
    assert auth_id not in [each.id for each in gpu.registries.list()]
    use_subscription(gpu)


def use_templates(gpu: Any) -> None:
    template = {
        "name": "mine", "readme": "", "type": "instance", "channel": "private", "image": "ubuntu:22.04",
        "imageAuth": "", "startCommand": "sleep 9", "rootfsSize": 60, "volumes": [],
        "ports": [{"type": "http", "ports": [8888]}], "envs": [{"key": "A", "value": "1"}], "tools": [],
    }  # fmt: skip
    template_id = gpu.templates.create(sent.CreateTemplateRequest.model_validate({"template": template})).template_id
    assert template_id in [each.id for each in gpu.templates.list()]
    assert gpu.templates.get(template_id).start_command == "sleep 9"
    gpu.templates.delete(template_id)
    assert "template not found" in refused(gpu.templates.get, template_id)


def make_auth(gpu: Any) -> str:
    gpu.registries.create("registry.example.org", "robot", "word")
    [auth_id] = [each.id for each in gpu.registries.list() if each.name == "registry.example.org"]
    return auth_id


def make_storage(gpu: Any) -> str:
    made = gpu.storages.create(
        sent.CreateNetworkStorageRequest(cluster_id=CLUSTER, storage_name="data", storage_size=20)
    )
    assert (made.storage_name, made.storage_size, made.cluster_id) == ("data", 20, CLUSTER)
    change = sent.UpdateNetworkStorageRequest(storage_id=made.storage_id, storage_name="more-data", storage_size=30)
    gpu.storages.update(change)
    [seen] = gpu.storages.list()
    assert (seen.storage_id, seen.storage_name, seen.storage_size) == (made.storage_id, "more-data", 30)
    return made.storage_id


def make_network(gpu: Any) -> str:
    gpu.networks.create(sent.CreateNetworkRequest(cluster_id=CLUSTER, name="private"))
    [made] = gpu.networks.list()
    gpu.networks.get(made.id)
    gpu.networks.update(sent.UpdateNetworkRequest(network_id=made.id, name="closed"))
    assert [each.name for each in gpu.networks.list()] == ["closed"]
    wait(lambda: gpu.networks.list()[0].state.state == "ready")
    return made.id


def make_instance(gpu: Any, auth_id: str, storage_id: str, network_id: str) -> str:
    instance_id = gpu.instances.create(
        sent.CreateInstanceRequest(
            name="trainer",
            product_id=PRODUCT,
            cluster_id=CLUSTER,
            gpu_num=1,
            rootfs_size=60,
            image_url="registry.example.org/trainer:1",
            image_auth_id=auth_id,
            kind="gpu",
            billing_mode="spot",
            ports="8888/http,22/tcp",
            envs=[sent.Env(key="A", value="1")],
            tools=[sent.Tool(name="Jupyter", port="8889", type="http")],
            network_storages=[sent.NetworkStorage(id=storage_id, mount_point="/data")],
            network_id=network_id,
        )
    ).id
    reach(gpu, instance_id, "running")
    seen = gpu.instances.get(instance_id)
    assert (seen.billing_mode, seen.network.id, seen.gpu_num) == ("spot", network_id, "1")
    assert [(each.id, each.mount_path, each.size) for each in seen.volume_mounts] == [(storage_id, "/data", "30")]
    assert {each.port for each in seen.port_mappings if each.endpoint} == {8888, 22, 8889}
    listed = gpu.instances.list(page_num=0, page_size=5, name="train", product_name="4090", status="running")
    assert [each.id for each in listed] == [instance_id]
    return instance_id


def change_instance(gpu: Any, instance_id: str, storage_id: str) -> None:
    ports = [sent.Port(port=80, type="http")]
    gpu.instances.edit(sent.EditInstanceRequest(instance_id=instance_id, ports=ports, expand_root_disk=5))
    wait(lambda: gpu.instances.get(instance_id).rootfs_size == 65)
    gpu.instances.restart(instance_id)
    reach(gpu, instance_id, "running")
    mounts = [sent.VolumeMount(type="network", id=storage_id, mount_path="/other")]
    gpu.instances.upgrade(
        sent.UpgradeInstanceRequest(
            instance_id=instance_id,
            image_url="ubuntu:24.04",
            envs=[],
            command="sleep 9",
            save=True,
            network_volume=sent.NetworkVolume(volume_mounts=mounts),
        )
    )
    reach(gpu, instance_id, "running")
    seen = gpu.instances.get(instance_id)
    assert (seen.image_url, seen.command, seen.volume_mounts[0].mount_path) == ("ubuntu:24.04", "sleep 9", "/other")
    gpu.instances.stop(instance_id)
    reach(gpu, instance_id, "exited")
    gpu.instances.start(instance_id)
    reach(gpu, instance_id, "running")
    assert "invalid state change" in refused(gpu.instances.start, instance_id)


def save_image(gpu: Any, instance_id: str, auth_id: str) -> None:
    gpu.instances.stop(instance_id)
    reach(gpu, instance_id, "exited")
    job_id = gpu.instances.save_image(
        sent.SaveImageRequest(instance_id=instance_id, image="registry.example.org/saved:1", registry_auth_id=auth_id)
    )
    [job] = gpu.jobs.list()
    assert (job.id, job.type, job.instance_id) == (job_id, "saveImage", instance_id)
    # It sends `job_id`; the provider's reference says `jobId`.
    assert "jobId" in refused(gpu.jobs.break_job, job_id)
    wait(lambda: gpu.jobs.list()[0].state.state == "success")


def prewarm(gpu: Any, auth_id: str) -> None:
    task = sent.CreateImagePrewarmRequest(
        image_url="registry.example.org/trainer:1", cluster_id=CLUSTER, product_ids=[PRODUCT], repository_auth=auth_id
    )
    task_id = gpu.image_prewarm.create(task).id
    gpu.image_prewarm.update(task_id, sent.UpdateImagePrewarmRequest(id=task_id, note="for monday"))
    assert [(each.id, each.note) for each in gpu.image_prewarm.list()] == [(task_id, "for monday")]
    wait(lambda: gpu.image_prewarm.list()[0].state == "Succeeded")
    assert gpu.image_prewarm.get_quota()["total"] == 1
    # It sends `task_id`; the provider's reference says `ids`.
    assert "ids" in refused(gpu.image_prewarm.delete, task_id)
    assert [each.id for each in gpu.image_prewarm.list()] == [task_id]


def use_subscription(gpu: Any) -> None:
    """Last: it can't be deleted."""
    wanted = sent.CreateInstanceRequest(
        product_id=PRODUCT, cluster_id=CLUSTER, gpu_num=1, rootfs_size=60, image_url="ubuntu:22.04", kind="gpu"
    )
    instance_id = gpu.instances.create(wanted).id
    reach(gpu, instance_id, "running")
    gpu.instances.convert_to_monthly(instance_id, 1)
    gpu.instances.renew(instance_id, 1)
    assert gpu.instances.get(instance_id).billing_mode == "monthly"


def refused(call: Any, *values: str) -> str:
    try:
        call(*values)
    except BadRequestError as error:
        return str(error)
    raise AssertionError("not refused")


def is_gone(call: Any, *values: str) -> bool:
    try:
        call(*values)
    except NotFoundError:
        return True
    return False


def reach(gpu: Any, instance_id: str, status: str) -> None:
    wait(lambda: gpu.instances.get(instance_id).status == status)


def wait(is_done: Any) -> None:
    end = time.monotonic() + SECONDS
    while not is_done():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.01)


main(sys.argv[1])
