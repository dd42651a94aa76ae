"""What can be seen of a webhook's URL before anything is connected to. The guard of the socket is what holds."""

import socket
from contextlib import suppress

from yarl import URL

from server.guard import Inside, is_allowed

LONGEST_URL = 2048


def url_problem(url: str, inside: Inside) -> str | None:
    """What is wrong with it, as a sentence; None when nothing is."""
    if not 1 <= len(url) <= LONGEST_URL:
        return f"A URL has 1 to {LONGEST_URL} characters."
    if any(each <= " " or each in "\\\x7f" or "\ud800" <= each <= "\udfff" for each in url):
        return "A URL has no spaces, backslashes or control characters."
    try:
        parsed = URL(url)
        host, port = parsed.raw_host, parsed.port
    except ValueError:
        return "It is not a URL."
    if parsed.scheme not in ("http", "https") or not host:
        return "A webhook's URL begins with http:// or https://, and names a host."
    if parsed.raw_user is not None or parsed.raw_password is not None or "@" in parsed.authority:
        return "A webhook's URL holds no user and no password."
    if parsed.raw_fragment:
        return "A webhook's URL has no fragment."
    if port == 0:
        return "There is no port 0."
    if not _may_be_allowed(host, inside):
        return "Its host is not on the public internet."
    return None


def _may_be_allowed(host: str, inside: Inside) -> bool:
    """False where the host is an address, in any spelling, that the guard would refuse."""
    name = host.rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return inside is not Inside.OFF
    if ":" in name:
        return is_allowed(name, inside)
    # Not only 127.0.0.1: resolvers also take 127.1, 0x7f.1, 017700000001 and 2130706433 for it.
    with suppress(OSError, UnicodeError):
        return is_allowed(socket.inet_ntoa(socket.inet_aton(name)), inside)
    return bool(name)
