"""Checks a webhook's URL when it is set, for an early error; server/ssrf.py is the actual protection."""

import socket
from contextlib import suppress

from yarl import URL

from server.ssrf import PrivateAddresses, is_allowed

URL_LENGTH_MAX = 2048


def url_problem(url: str, private_addresses: PrivateAddresses) -> str | None:
    """What is wrong with the URL, as a sentence; None if it is valid."""
    if not 1 <= len(url) <= URL_LENGTH_MAX:
        return f"A URL has 1 to {URL_LENGTH_MAX} characters."
    if any(each <= " " or each in "\\\x7f" or "\ud800" <= each <= "\udfff" for each in url):
        return "A URL must not contain spaces, backslashes or control characters."
    try:
        parsed = URL(url)
        host, port = parsed.raw_host, parsed.port
    except ValueError:
        return "Not a valid URL."
    if parsed.scheme not in ("http", "https") or not host:
        return "A webhook's URL needs http:// or https:// and a host."
    if parsed.raw_user is not None or parsed.raw_password is not None or "@" in parsed.authority:
        return "A webhook's URL must not contain a user or password."
    if parsed.raw_fragment:
        return "A webhook's URL must not have a fragment."
    if port == 0:
        return "The port must not be 0."
    if not _may_be_allowed(host, private_addresses):
        return "The host is not on the public internet."
    return None


def _may_be_allowed(host: str, private_addresses: PrivateAddresses) -> bool:
    """False if the host is an address, in any spelling, that server/ssrf.py refuses."""
    name = host.rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return private_addresses is not PrivateAddresses.OFF
    if ":" in name:
        return is_allowed(name, private_addresses)
    # Resolvers also accept 127.1, 0x7f.1, 017700000001 and 2130706433 for 127.0.0.1.
    with suppress(OSError, UnicodeError):
        return is_allowed(socket.inet_ntoa(socket.inet_aton(name)), private_addresses)
    return bool(name)
