"""Who may be connected to at an address that somebody else chose: asked for each socket, with the address it will use.

A check of the URL, or of what its name resolved to a moment ago, is no guard: names have many spellings and change
their addresses. The socket's own address has one spelling, and nothing comes between this check and the connect.
"""

import asyncio
import errno
import resource
import socket
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver

# (family, type, protocol, canonical name, address), as getaddrinfo gives them.
AddressInfo = tuple[Any, Any, Any, Any, Any]


MANY_FILES = 65_536
LOOKUPS = 64


class Inside(StrEnum):
    """Which addresses that are not on the public internet may be connected to all the same."""

    OFF = "off"
    LOOPBACK = "loopback"
    ALL = "all"


class Blocked(OSError):
    """That address is not for us to connect to; no socket was made."""

    def __init__(self) -> None:
        # The address stays out: whoever gave us the name must not learn what it resolves to in here.
        super().__init__(errno.EACCES, "the address is not on the public internet")


# What `ipaddress` of Python 3.11 takes for global and is not, or what leads on to an address inside.
NOT_PUBLIC_4 = tuple(
    ip_network(each)
    for each in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",  # shared by providers
        "127.0.0.0/8",
        "169.254.0.0/16",  # link-local, and the metadata services of the clouds
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",  # relays of 6to4
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
)
# Only this is handed out to hosts on the internet; mapped, NAT64, site- and link-local addresses are all elsewhere.
UNICAST_6 = ip_network("2000::/3")
NOT_PUBLIC_6 = tuple(
    ip_network(each)
    for each in (
        "2001::/23",  # protocols of the IETF, Teredo among them, which carries an IPv4 address
        "2001:db8::/32",
        "2002::/16",  # 6to4, which carries an IPv4 address
        "2620:4f:8000::/48",
        "3fff::/20",
    )
)


def is_allowed(address: str, inside: Inside = Inside.OFF) -> bool:
    """Whether one may connect to this address, written as sockets have it."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    match inside:
        case Inside.ALL:
            return True
        case Inside.LOOPBACK:
            mapped = ip.ipv4_mapped if isinstance(ip, IPv6Address) else None
            return (mapped or ip).is_loopback or _is_public(ip)
        case Inside.OFF:
            return _is_public(ip)


def sockets(inside: Inside) -> Callable[[AddressInfo], socket.socket]:
    """Makes sockets for those who may be connected to, and raises Blocked for the others."""

    def make(info: AddressInfo) -> socket.socket:
        family, kind, protocol, _, address = info
        if family not in (socket.AF_INET, socket.AF_INET6) or not is_allowed(str(address[0]), inside):
            raise Blocked
        return socket.socket(family, kind, protocol)

    return make


def guarded(
    inside: Inside, *, resolver: AbstractResolver | None = None, tls: ssl.SSLContext | None = None
) -> aiohttp.TCPConnector:
    """A connector for addresses that others chose. Nothing is kept for later: each request connects, and is checked."""
    return aiohttp.TCPConnector(
        socket_factory=sockets(inside),
        resolver=resolver,
        ssl=True if tls is None else tls,
        force_close=True,
        limit=0,
        use_dns_cache=False,
    )


def allow_many_sockets() -> None:
    """For a process that talks to many strangers at once; call it in the loop that will.

    The limit of open files is lifted to what it may be: many systems begin with 1,024. Names are looked up in threads,
    each of which a dead name server holds for seconds, and there are only a handful unless told otherwise.
    """
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(LOOKUPS, thread_name_prefix="lookup"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MANY_FILES if hard == resource.RLIM_INFINITY else min(hard, MANY_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _is_public(ip: IPv4Address | IPv6Address) -> bool:
    if isinstance(ip, IPv4Address):
        return not any(ip in network for network in NOT_PUBLIC_4 if isinstance(network, IPv4Network))
    if ip not in UNICAST_6:
        return False
    return not any(ip in network for network in NOT_PUBLIC_6 if isinstance(network, IPv6Network))
