"""The templates and the registry auth of a new account."""

from server.simulator.requests import JsonObject

AUTH_ID = "75irlsvvsehnqdajg2r481mjk54ecodc"


def first_records(wall: float) -> list[tuple[str, str, JsonObject]]:
    auth: JsonObject = {
        "id": AUTH_ID,
        "name": "registry.example.test",
        "username": "robot",
        "password": "not-a-real-password",
    }
    templates = [
        _template(
            "jupyter",
            "pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime",
            ports=[("http", [8888, 6006]), ("tcp", [22])],
            command="jupyter lab --ip=0.0.0.0 --allow-root",
            envs=[("JUPYTER_TOKEN", "")],
            channel="official",
        ),
        _template(
            "vllm",
            "vllm/vllm-openai:v0.6.4",
            ports=[("http", [8000]), ("tcp", [22])],
            command="--model meta-llama/Llama-3.1-8B-Instruct --port 8000",
            envs=[("HF_HOME", "/workspace/hf")],
            volumes=[("local", 100, "/workspace")],
            channel="official",
            rootfs=100,
        ),
        _template(
            "private-trainer",
            "registry.example.test/team/trainer:1.4",
            ports=[("http", [8080]), ("tcp", [22])],
            auth=AUTH_ID,
        ),
        _template("ubuntu", "ubuntu:22.04", ports=[("tcp", [22])], rootfs=20),
        # The next two are broken on purpose: the provider accepts such templates.
        _template("broken-no-image", "", ports=[("http", [8080])]),
        _template("broken-ports", "nginx:1.27", ports=[("tcp", [70000, 0]), ("http", [2222, 8080, 8080])]),
    ]
    records: list[tuple[str, str, JsonObject]] = [("auth", AUTH_ID, auth)]
    for number, template in enumerate(templates, start=107_672):
        key = str(number)
        records.append(("template", key, {"Id": key, **template, "createTime": str(int(wall))}))
    return records


def _template(
    name: str,
    image: str,
    *,
    ports: list[tuple[str, list[int] | list[str]]],
    command: str = "",
    envs: list[tuple[str, str]] | None = None,
    volumes: list[tuple[str, int, str]] | None = None,
    auth: str = "",
    channel: str = "private",
    rootfs: int = 60,
) -> JsonObject:
    return {
        "user": "9141320498493177",
        "name": name,
        "readme": "",
        "logo": "",
        "type": "instance",
        "channel": channel,
        "image": image,
        "imageAuth": auth,
        "startCommand": command,
        "entrypoint": "",
        "rootfsSize": rootfs,
        "volumes": [{"type": kind, "size": size, "mountPath": path} for kind, size, path in volumes or []],
        "ports": [{"type": kind, "ports": numbers} for kind, numbers in ports],
        "envs": [{"key": key, "value": value} for key, value in envs or []],
        "tools": [],
        "minCudaVersion": "",
    }
