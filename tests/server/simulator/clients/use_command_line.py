"""Uses a provider's account through the vendor's command line, the PyPI package `novita`.

Runs in an environment of its own: python use_command_line.py URL
"""

import json
import sys
import time
from typing import Any

import novita_cli.core.client as core
import requests
from click.testing import CliRunner
from novita_cli.novita_cli import cli

SECONDS = 10


def main(url: str) -> None:
    core.BASE_URL = url  # it has no option for it
    assert "us-ca-6" in [each["id"] for each in ask("gpu clusters")["data"]]
    assert "4090.16c62g" in say("gpu products --gpu-num 1 --name 4090 --billing spot")
    assert ask("gpu cpu-products")["data"]

    template_id = ask("template create --name mine --image ubuntu:22.04 --cuda 12.4 --env A=1")["templateId"]
    assert template_id in say("template list")
    say(f"template edit {template_id} --name ours --rootfs 70")
    changed = ask(f"template get {template_id}")
    assert (changed["name"], changed["rootfsSize"], changed["minCudaVersion"]) == ("ours", 70, "12.4")
    say(f"template delete {template_id}")

    storage_id = ask("storage create --cluster-id us-ca-6 --name data --size 20")["storageId"]
    say(f"storage delete {storage_id}")

    created = "gpu create --product-id 4090.16c62g --image ubuntu:22.04 --name trainer --ports 80/http --env A=1"
    instance_id = ask(created)["id"]
    reach(instance_id, "running")
    assert instance_id[:12] in say("gpu list --status running --name train")
    load = {"gpuPercent": 42, "from": time.time() - 300, "to": time.time()}
    requests.post(f"{url}/control/instances/{instance_id}/load", json=load, timeout=SECONDS).raise_for_status()
    assert "GPU Utilization: 42" in say(f"gpu metrics {instance_id} --interval 15")
    say(f"gpu edit {instance_id} --expand-disk 5")
    for verb, status in (("restart", "running"), ("stop", "exited"), ("start", "running")):
        say(f"gpu {verb} {instance_id}")
        reach(instance_id, status)
    assert ask(f"gpu get {instance_id}")["rootfsSize"] == 45
    say(f"gpu delete {instance_id}")
    for words in ("account balance", "account billing", "account usage-billing"):  # of another API: /v3/user
        assert "404" in refused(words)


def say(words: str) -> str:
    result = CliRunner().invoke(cli, ["--api-key", "sk_any", *words.split()])
    assert result.exit_code == 0, f"{words}: {result.output} {result.exception!r}"
    return result.output


def refused(words: str) -> str:
    result = CliRunner().invoke(cli, ["--api-key", "sk_any", *words.split()])
    assert result.exit_code == 1, f"{words}: {result.output}"
    return f"{result.output} {result.stderr}"


def ask(words: str) -> Any:
    return json.loads(say(f"--json-output {words}"))


def reach(instance_id: str, status: str) -> None:
    end = time.monotonic() + SECONDS
    while ask(f"gpu get {instance_id}")["status"] != status:
        assert time.monotonic() < end, f"never {status}"
        time.sleep(0.01)


main(sys.argv[1])
