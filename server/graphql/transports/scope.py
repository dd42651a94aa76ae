"""What `server.http` puts into an ASGI scope, and the client's address in it; imports no part of GraphQL."""

from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network

from starlette.types import Scope

# Under which `server.http` puts the WebSocket, and the connection of an HTTP request, into the scope.
EXTENSION = "pilotlight.wire"
CONNECTION = "pilotlight.connection"


def address_of(scope: Scope) -> str:
    """What the limits per address count: the client, or the last proxy that is not trusted."""
    client = scope.get("client")
    return network_of(client[0]) if client else ""


@lru_cache(maxsize=4096)
def network_of(address: str) -> str:
    """An IPv4 address; of an IPv6 address its /64, because one client has all of that."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address):
        return str(parsed.ipv4_mapped or ip_network((int(parsed), 64), strict=False))
    return address
