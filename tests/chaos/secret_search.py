"""Searches every log and every table of a chaos run for every secret that was planted or made."""

from typing import Any

import aiohttp

from tests.chaos.cluster import Cluster


async def search_secrets(stage: Cluster, connection: Any) -> tuple[int, list[str]]:
    """How many searches there were, and what was found."""
    planted = stage.secrets
    needles = {
        "the provider's key": planted.novita_key,
        "the signing key": planted.signing_key,
        "a token": planted.token,
        "a stranger's token": planted.stranger,
        "the token of the server's administrator": planted.server_admin,
        "the webhook secret": planted.webhook,
        "the registry password": planted.registry_password,
        **{f"an SSH password {n}": word for n, word in enumerate(await _ssh_passwords(stage))},
    }
    wrong: list[str] = []
    files = 0
    for process in stage.processes.values():
        wrong += _found(needles, process.log.read_text(errors="replace"), f"the log of {process.name}")
        files += 1
    tables = await connection.fetch(
        "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition"
        " AND relnamespace = 'public'::regnamespace"
    )
    for (table,) in tables:
        rows = await connection.fetch(f'SELECT to_jsonb(t)::text FROM "{table}" AS t')
        wrong += _found(needles, "\n".join(row[0] for row in rows), f"table {table}")
        files += 1
    return files * len(needles), wrong


def _found(needles: dict[str, str], text: str, where: str) -> list[str]:
    return [f"{what} is in {where}" for what, needle in needles.items() if needle and needle in text]


async def _ssh_passwords(stage: Cluster) -> set[str]:
    """Of the machines that run now; each run of each has its own."""
    passwords: set[str] = set()
    async with (
        aiohttp.ClientSession() as http,
        http.get(
            f"{stage.simulator_url}/gpu-instance/openapi/v1/gpu/instances",
            params={"pageSize": "100", "pageNum": "1"},
            headers={"authorization": f"Bearer {stage.secrets.novita_key}"},
        ) as response,
    ):
        for item in (await response.json())["instances"]:
            ssh: dict[str, Any] = item.get("connectComponentSSH") or {}
            if ssh.get("password"):
                passwords.add(ssh["password"])
    return passwords
