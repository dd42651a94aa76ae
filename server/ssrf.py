"""Guard against server-side request forgery: checks the address of each socket before it connects.

A check of the URL, or of an earlier DNS result, is not enough: names have many spellings and change their addresses.
The socket's own address has one spelling, and nothing happens between this check and the connect.
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

# (family, type, protocol, canonical name, address), as getaddrinfo returns them.
AddressInfo = tuple[Any, Any, Any, Any, Any]


OPEN_FILES_MAX = 65_536
DNS_THREADS = 64


class PrivateAddresses(StrEnum):
    """Which addresses outside the public internet are allowed."""

    OFF = "off"
    LOOPBACK = "loopback"
    ALL = "all"


class AddressBlocked(OSError):
    """The address is not allowed; no socket was created."""

    def __init__(self) -> None:
        # Without the address: the caller must not learn what a name resolves to inside this network.
        super().__init__(errno.EACCES, "the address is not on the public internet")


# Networks that Python 3.11's `ipaddress` wrongly considers global are included, and those that map to other addresses.
PRIVATE_IPV4 = tuple(
    ip_network(each)
    for each in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT, and Alibaba's metadata service (100.100.100.200)
        "127.0.0.0/8",
        "161.26.0.0/16",  # IBM Cloud: services inside its network, on public numbers
        "166.8.0.0/14",  # the same
        "168.63.129.16/32",  # Azure: the host's agent, DNS and health probes, on a public number
        "169.254.0.0/16",  # link-local, and the metadata services of most clouds
        "172.16.0.0/12",
        "192.0.0.0/24",  # IETF protocols, and Oracle's metadata service (192.0.0.192)
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
)
# Public unicast addresses; mapped, NAT64, site-local, link-local and unique local addresses (with the metadata services
# fd00:ec2::254 of AWS and fd20:ce::254 of Google) are all outside it.
UNICAST_IPV6 = ip_network("2000::/3")
PRIVATE_IPV6 = tuple(
    ip_network(each)
    for each in (
        "2001::/23",  # IETF protocols, including Teredo, which contains an IPv4 address
        "2001:db8::/32",
        "2002::/16",  # 6to4, which contains an IPv4 address
        "2620:4f:8000::/48",
        "3fff::/20",
    )
)


def is_allowed(address: str, private_addresses: PrivateAddresses = PrivateAddresses.OFF) -> bool:
    """Whether connecting to this address is allowed; written as in a socket address."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    match private_addresses:
        case PrivateAddresses.ALL:
            return True
        case PrivateAddresses.LOOPBACK:
            mapped = ip.ipv4_mapped if isinstance(ip, IPv6Address) else None
            return (mapped or ip).is_loopback or _is_public(ip)
        case PrivateAddresses.OFF:
            return _is_public(ip)


def checked_socket_factory(private_addresses: PrivateAddresses) -> Callable[[AddressInfo], socket.socket]:
    """Creates sockets for allowed addresses and raises AddressBlocked for others."""

    def make(info: AddressInfo) -> socket.socket:
        family, kind, protocol, _, address = info
        if family not in (socket.AF_INET, socket.AF_INET6) or not is_allowed(str(address[0]), private_addresses):
            raise AddressBlocked
        return socket.socket(family, kind, protocol)

    return make


def guarded_connector(
    private_addresses: PrivateAddresses, *, resolver: AbstractResolver | None = None, tls: ssl.SSLContext | None = None
) -> aiohttp.TCPConnector:
    """A connector for addresses chosen by users. It reuses no connection: each request connects and is checked."""
    return aiohttp.TCPConnector(
        socket_factory=checked_socket_factory(private_addresses),
        resolver=resolver,
        ssl=True if tls is None else tls,
        force_close=True,
        limit=0,
        use_dns_cache=False,
    )


def raise_socket_limits() -> None:
    """For a process with many outgoing connections; call it in their event loop.

    Raises the limit of open files and the number of DNS threads: a dead name server blocks a thread for seconds, and
    the default executor has few.
    """
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(DNS_THREADS, thread_name_prefix="lookup"))
    raise_open_files()


def raise_open_files() -> None:
    """Raise the soft limit of open files, which is 1,024 on many systems."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def _is_public(ip: IPv4Address | IPv6Address) -> bool:
    if isinstance(ip, IPv4Address):
        return not any(ip in network for network in PRIVATE_IPV4 if isinstance(network, IPv4Network))
    if ip not in UNICAST_IPV6:
        return False
    return not any(ip in network for network in PRIVATE_IPV6 if isinstance(network, IPv6Network))
