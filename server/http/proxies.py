"""Finds the client behind proxies that are trusted to name it in X-Forwarded-For."""

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Network = IPv4Network | IPv6Network
Headers = list[tuple[bytes, bytes]]


class TrustedProxies:
    """The networks of the proxies; without any, the header is not read."""

    def __init__(self, networks: tuple[Network, ...]) -> None:
        self._networks = networks
        self.trusts = lru_cache(maxsize=1024)(self._trusts)

    def client_of(self, peer: str, headers: Headers) -> str:
        """The address of the client of a request that came from `peer`, a trusted proxy.

        Each proxy adds the address that connected to it, so the list is read from its end, and only as long as the
        entry was written by a trusted proxy: what stands before it may be the client's own invention.
        """
        hops = b",".join(value for name, value in headers if name == b"x-forwarded-for").decode("latin-1").split(",")
        client = peer
        while hops and self.trusts(client):
            hop = _address(hops.pop())
            if hop is None:
                break
            client = str(hop)
        return client

    def _trusts(self, address: str) -> bool:
        parsed = _address(address)
        return parsed is not None and any(parsed in network for network in self._networks)


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """An address; some proxies add the port: 192.0.2.1:443, [2001:db8::1]:443."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        return address.ipv4_mapped or (None if address.scope_id else address)
    return address
