"""Access to a machine (SSH, Jupyter, web terminal), fetched from the provider for every request and never stored.

Addresses and passwords change with every start, so a stored copy would be useless and a risk.
"""

from dataclasses import dataclass
from functools import partial

from pydantic import SecretStr

from server.auth.caller import Caller
from server.db.tables import InstanceLike
from server.instances.provider.live_reads import fetch_for_user
from server.instances.provider.reader import ProviderReader
from server.novita.models import Jupyter, WebTerminal

RUNNING = "running"  # the provider's word


@dataclass(frozen=True, slots=True)
class SshAccess:
    command: str
    password: SecretStr | None
    is_running: bool


@dataclass(frozen=True, slots=True)
class Access:
    """All ways to connect; None where the provider offers none."""

    ssh: SshAccess | None
    jupyter: Jupyter | None
    web_terminal: WebTerminal | None


async def instance_access(reader: ProviderReader, instance: InstanceLike, *, by: Caller) -> Access | None:
    """The present access data; None while the machine does not run. Raises NovitaError, TooManyLiveReads.

    The provider's status decides, not ours: users can log in to a machine that failed its checks, to see why.
    """
    remote = await fetch_for_user(instance, partial(reader.fetch, by=by), what="say how to log in")
    if remote is None or remote.status != RUNNING:
        return None
    ssh = remote.ssh
    return Access(
        ssh=None if ssh is None or ssh.command is None else SshAccess(ssh.command, ssh.password, ssh.is_running),
        jupyter=remote.jupyter,
        web_terminal=remote.web_terminal,
    )
