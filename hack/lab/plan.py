"""What a supervisor is told to run: plain data, handed over as one JSON file."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Probe:
    """How to see that a component serves: a unix socket that accepts, or a URL that answers 200."""

    unix: str = ""
    url: str = ""
    ca: str = ""
    """File with the authority that signed the URL's certificate."""
    token: str = ""
    """Bearer token for the URL."""


@dataclass(frozen=True)
class Component:
    """One program. The next one is started when this one's probe answers."""

    name: str
    argv: list[str]
    probe: Probe | None = None
    ready_seconds: float = 60.0


@dataclass(frozen=True)
class Plan:
    """Everything a supervisor needs to know."""

    components: list[Component]
    logs: str
    """Folder of the components' logs, one file each."""
    report: str
    """File in which the supervisor tells how things stand."""
    shielded: list[str] = field(default_factory=list)
    """Folders in which writes stay in this enclosure and never reach the machine."""
    kept: list[str] = field(default_factory=list)
    """Folders inside the shielded ones that remain the machine's own."""
    fixed_kernel_settings: dict[str, str] = field(default_factory=dict)
    """Files under /proc/sys shown inside with this value; the machine's own setting stays as it is."""
    stop_seconds: float = 10.0
    """How long each component may take to end when asked."""


def dump(plan: Plan, path: Path) -> None:
    """Write the plan for its owner's eyes only: it may hold tokens."""
    path.touch(mode=0o600)
    path.write_text(json.dumps(asdict(plan), indent=1))


def load(path: Path) -> Plan:
    """Read back what `dump` wrote."""
    raw: dict[str, Any] = json.loads(path.read_text())
    components = [
        Component(**{**item, "probe": Probe(**item["probe"]) if item["probe"] else None})
        for item in raw["components"]
    ]
    return Plan(**{**raw, "components": components})
