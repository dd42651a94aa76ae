"""The listening socket of a process, and the signals that stop it. Imports nothing heavy: the simulator uses it too."""

import asyncio
import errno
import signal
import socket
from typing import Any

from server.errors import StartupProblem


def bind(host: str, port: int) -> socket.socket:
    """Take the port before anything else starts, so that a taken one is reported at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is given because asyncio disables Nagle only then: without it a response may wait for 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise StartupProblem(f"port {port} on {host} is taken; choose another with --port (0 takes any)") from None
        raise StartupProblem(f"can't listen on {host} port {port}: {error.strerror or error}") from None
    except OverflowError:
        listener.close()
        raise StartupProblem(f"there is no port {port}") from None
    return listener


def address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def stop_event() -> asyncio.Event:
    """Set by the first Ctrl-C or SIGTERM. The second one ends the process at once."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal(number: Any) -> None:
        stop.set()
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(each)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal, number)
    return stop
