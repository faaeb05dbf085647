"""Which network addresses a request may send this server to. Pure."""

import ipaddress

_PROTOCOL_ASSIGNMENTS = ipaddress.IPv4Network("192.0.0.0/24")
"""Python knows a part of it only."""
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


def is_public(address: str) -> bool:
    """Whether an IP address belongs to the public internet.

    False for loopback, private, shared, link-local, multicast, documentation and reserved addresses, also
    where IPv6 carries an IPv4 address inside.
    """
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv4Address):
        special = ip.is_multicast or ip.is_reserved or ip in _PROTOCOL_ASSIGNMENTS
        return ip.is_global and not special
    inner = ip.ipv4_mapped or ip.sixtofour or _behind_nat64(ip)
    if inner is not None:
        return is_public(str(inner))
    return ip in _GLOBAL_UNICAST and ip.is_global


def _behind_nat64(ip: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF) if ip in _NAT64 else None
