"""How to log in to a machine, asked of the provider each time and kept nowhere.

Address and password are others after every start, so what was read before is of no use to anybody but a thief.
"""

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from pydantic import SecretStr

from server.db.tables import Instance
from server.errors import ProviderNotFound, ProviderTimeout
from server.novita.client import NovitaClient

# Somebody waits in person, and can do nothing with an older answer.
PATIENCE = timedelta(seconds=10)
RUNNING = "running"  # the provider's word


@dataclass(frozen=True, slots=True)
class SshAccess:
    command: str
    password: SecretStr | None
    is_running: bool


async def ssh_access(novita: NovitaClient, instance: Instance) -> SshAccess | None:
    """What the provider says now; None while its machine does not run. Raises NovitaError.

    The provider's word counts and not our status: a machine that failed its checks can be logged in to, to see why.
    """
    if instance.novita_id is None or instance.deleted_at is not None:
        return None
    try:
        async with asyncio.timeout(PATIENCE.total_seconds()):
            remote = await novita.instance(instance.novita_id)
    except ProviderNotFound:
        return None
    except TimeoutError:
        raise ProviderTimeout("the provider takes too long to say how to log in") from None
    if remote.status != RUNNING or remote.ssh is None or remote.ssh.command is None:
        return None
    return SshAccess(remote.ssh.command, remote.ssh.password, remote.ssh.is_running)
