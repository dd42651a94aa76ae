"""The haproxy of deploy/front before real API processes, with a name server that lists them."""

import asyncio
import os
import shutil
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.processes import ROOT, free_port, is_free
from tests.support.waiting import until

CONFIG = ROOT / "deploy/front/haproxy.cfg"
A, IN = 1, 1


class Names(asyncio.DatagramProtocol):
    """A name server with one name: every question for addresses gets all of them."""

    def __init__(self, addresses: list[str]) -> None:
        self.addresses = addresses

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        end = data.index(b"\0", 12) + 5  # after the name, its type and its class
        [kind] = struct.unpack(">H", data[end - 4 : end - 2])
        found = self.addresses if kind == A else []
        header = data[:2] + struct.pack(">HHHHH", 0x8180, 1, len(found), 0, 0)
        answers = b"".join(struct.pack(">HHHIH4B", 0xC00C, A, IN, 1, 4, *map(int, each.split("."))) for each in found)
        self._transport.sendto(header + data[12:end] + answers, addr)  # type: ignore[attr-defined]


@asynccontextmanager
async def front(addresses: list[str], port: int, folder: Path) -> AsyncIterator[str]:
    """haproxy as deployed; the URL at which it listens."""
    loop = asyncio.get_running_loop()
    dns, _ = await loop.create_datagram_endpoint(lambda: Names(addresses), local_addr=("127.0.0.1", 0))
    listens = free_port()
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "FRONT_BIND": f"127.0.0.1:{listens}",
        "API_ADDRESS": f"api:{port}",
        "DNS_ADDRESS": f"127.0.0.1:{dns.get_extra_info('sockname')[1]}",
    }
    with (folder / "haproxy.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            str(shutil.which("haproxy")), "-db", "-f", str(CONFIG), env=environment, stdout=log, stderr=log
        )
    try:
        await until(lambda: not is_free(listens) or process.returncode is not None)
        assert process.returncode is None, (folder / "haproxy.log").read_text()
        yield f"http://127.0.0.1:{listens}"
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        dns.close()
