"""Ports of this machine for programs that cannot take one by themselves."""

import itertools
import os
import socket

# Below the kernel's range for outgoing connections (32768 and up): one of those could take a port between
# our look and the program's start. Two of our processes begin at different places.
_FIRST, _COUNT = 12000, 16000
_offsets = itertools.count(os.getpid() * 97)


def free_port() -> int:
    """A TCP port on which nobody listens; this process gets no port twice."""
    for offset in itertools.islice(_offsets, _COUNT):
        port = _FIRST + offset % _COUNT
        with socket.socket() as probe:
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                continue
        return port
    raise OSError(f"no port between {_FIRST} and {_FIRST + _COUNT} is free")
