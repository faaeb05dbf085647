"""How every model looks on a pod that does not answer. Pure."""

from flexserv_operator.pods import Pod
from flexserv_operator.replica import STARTING, Replica, unreachable


def silence(pod: Pod, reason: str, message: str, *, lasting: bool = False) -> Replica:
    """`reason` and `message` say why there was no answer, which does not matter for a pod that cannot answer
    yet; a `lasting` one stays until a person mends it."""
    if pod.trouble:
        return unreachable("BackendUnreachable", f"the pod's container does not run: {pod.trouble}")
    if pod.starting and reason == "BackendUnreachable":
        return Replica("Pending", STARTING, "the pod is starting")
    return Replica("Failed", reason, message) if lasting else unreachable(reason, message)
