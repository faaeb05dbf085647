"""The cable between this machine and the node: one veth pair in a free private network of four addresses."""

import ipaddress
import json
from collections.abc import Iterable

from lab.commands import run, succeeds
from lab.errors import CommandError, MissingError

_SECONDS = 20.0
_CANDIDATES = [ipaddress.IPv4Network(f"10.213.{number}.0/30") for number in range(256)]


def pick(in_use: Iterable[ipaddress.IPv4Network]) -> ipaddress.IPv4Network:
    """The first candidate that overlaps nothing in use. Raises MissingError if there is none."""
    taken = list(in_use)
    for candidate in _CANDIDATES:
        if not any(candidate.overlaps(other) for other in taken):
            return candidate
    raise MissingError("no network in 10.213.0.0/16 is free on this machine")


def free_addresses() -> tuple[str, str]:
    """Two addresses for the two ends: this machine's and the node's."""
    routes = json.loads(run(["ip", "-json", "-4", "route", "show", "table", "all"], timeout=_SECONDS) or "[]")
    in_use = [
        ipaddress.IPv4Network(route["dst"], strict=False) for route in routes if route["dst"] != "default"
    ]
    first, second = pick(network for network in in_use if network.prefixlen > 0).hosts()
    return str(first), str(second)


def connect(pid: int, device: str, host_address: str, node_address: str) -> None:
    """Lay the cable between this machine and the network namespace of process `pid`."""
    inside = ["nsenter", f"--net=/proc/{pid}/ns/net"]
    for command in (
        ["ip", "link", "add", device, "type", "veth", "peer", "name", "eth0", "netns", str(pid)],
        ["ip", "address", "add", f"{host_address}/30", "dev", device],
        ["ip", "link", "set", device, "up"],
        [*inside, "ip", "link", "set", "lo", "up"],
        [*inside, "ip", "address", "add", f"{node_address}/30", "dev", "eth0"],
        [*inside, "ip", "link", "set", "eth0", "up"],
        # Nothing is routed beyond this machine; a default route lets processes of the node find ClusterIPs.
        [*inside, "ip", "route", "add", "default", "via", host_address],
        [*inside, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"],
    ):
        run(command, timeout=_SECONDS)


def disconnect(device: str) -> None:
    """Remove the cable. It goes by itself with the node, perhaps at this very moment."""
    removed = succeeds(["ip", "link", "delete", device], timeout=_SECONDS)
    if not removed and succeeds(["ip", "link", "show", device], timeout=_SECONDS):
        raise CommandError(f"network device {device} cannot be removed: see ip link delete {device}")
