"""`pilotlight ssh` and `cp` with a real SSH server: password by askpass, exit codes, files, host keys of one run."""

import asyncio
import os
import shlex
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.server.cli.user.conftest import Ran, compare
from tests.support.api import Api
from tests.support.machines import make_running
from tests.support.other_environment import python_with, run_program
from tests.support.processes import PILOTLIGHT

PROGRAM = Path(__file__).parent / "programs" / "ssh_server.py"
PASSWORD = "pw-of-this-start 'quoted' $HOME"

STORY = [
    "ssh box -- sh -c 'echo out; echo err >&2; exit 7'",
    "ssh nothing",
    "cp {here}/weights.bin box:/weights.bin",
    "cp box:/weights.bin {here}/back.bin",
    "cp box:/nothing {here}/back.bin",
]

pytestmark = pytest.mark.skipif(shutil.which("ssh") is None, reason="ssh is not installed")


@pytest.fixture(scope="module")
async def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return await python_with(tmp_path_factory.mktemp("ssh") / "venv", "asyncssh==2.24.1")


@asynccontextmanager
async def ssh_server(python: Path, folder: Path, port: int = 0) -> AsyncIterator[int]:
    """Its port; it has a new host key."""
    folder.mkdir(exist_ok=True)
    server = await asyncio.create_subprocess_exec(
        python, PROGRAM, PASSWORD, str(folder), str(port), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert server.stdout is not None
        yield int(await asyncio.wait_for(server.stdout.readline(), 60))
    finally:
        server.kill()
        await server.wait()


async def machine_at(api: Api, port: int, *, password: str = PASSWORD) -> None:
    """The instance `box`, whose SSH access leads to this port."""
    (machine,) = await make_running(api.world, 1)
    simulated = api.world.simulator.world.instance(machine)
    simulated.ssh_command = f"ssh -p {port} root@127.0.0.1"
    simulated.ssh_password = password
    await api.world.put(name="box", novita_id=machine)


async def user(api: Api, *words: str) -> tuple[int, str, str]:
    env = {"PATH": os.environ["PATH"], "PILOTLIGHT_URL": f"http://{api.server.address}/graphql"}
    return await run_program(*PILOTLIGHT, *words, env={**env, "PILOTLIGHT_TOKEN": api.token})


async def test_a_command_runs_there_and_files_are_copied_both_ways(api: Api, python: Path, tmp_path: Path):
    there, here = tmp_path / "there", tmp_path / "here"
    (here / "data").mkdir(parents=True)
    content = os.urandom(300_000)
    (here / "data" / "weights.bin").write_bytes(content)
    (here / "weights.bin").write_bytes(content)
    lines = list[str]()
    async with ssh_server(python, there) as port:
        await machine_at(api, port)
        for command in STORY:
            ran = Ran(*await user(api, *shlex.split(command.format(here=here))))
            text = ran.text.replace(str(here), "{here}").replace(shutil.which("scp") or "", "scp")
            lines.append(f"$ pilotlight {command}\n{text}")
        folder = await user(api, "cp", str(here / "data"), "box:/copied")

    compare("machine", "\n".join(lines))
    assert folder[0] == 0, folder
    assert (there / "copied" / "weights.bin").read_bytes() == content
    assert (here / "back.bin").read_bytes() == content


async def test_another_key_of_the_same_address_is_accepted_and_none_is_kept(api: Api, python: Path, tmp_path: Path):
    known_hosts = Path("~/.ssh/known_hosts").expanduser()
    before = known_hosts.read_bytes() if known_hosts.exists() else None
    async with ssh_server(python, tmp_path / "one") as port:
        await machine_at(api, port)
        first = await user(api, "ssh", "box", "--", "pwd")
    async with ssh_server(python, tmp_path / "two", port):
        second = await user(api, "ssh", "box", "--", "pwd")

    assert (first[:2], second[:2]) == ((0, f"{tmp_path / 'one'}\n"), (0, f"{tmp_path / 'two'}\n")), (first, second)
    assert (known_hosts.read_bytes() if known_hosts.exists() else None) == before


async def test_a_wrong_password_ends_and_is_not_shown(api: Api, python: Path, tmp_path: Path):
    async with ssh_server(python, tmp_path / "there") as port:
        await machine_at(api, port, password="not-the-password")
        code, printed, said = await user(api, "ssh", "box", "--", "pwd")

    assert (code, printed) == (255, "")
    assert "Permission denied" in said
    assert "not-the-password" not in said
