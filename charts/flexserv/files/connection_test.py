"""Asks a running backend what only a working one can answer; the pod of `helm test` runs it."""

import json
import os
import urllib.request

address = os.environ["BACKEND_URL"]


def get(path: str) -> str:
    with urllib.request.urlopen(address + path, timeout=10) as reply:
        return reply.read().decode()


get("/health")
health = json.loads(get("/v1/flexserv/health"))
if health["status"] != "ok":
    raise SystemExit(f"the backend is not ready: {health}")
if "flexserv_ready" not in get("/metrics"):
    raise SystemExit("/metrics answers, but says nothing of flexserv_ready")
print(f"ok: {address} is ready on {health['device']}")
