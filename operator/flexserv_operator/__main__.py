"""The operator's process: settings, one of everything, and kopf around it."""

import asyncio
import sys
from collections.abc import Sequence

import kopf
from prometheus_client import start_http_server

from flexserv_operator.api_server import ApiServer
from flexserv_operator.backend_client import BackendClient
from flexserv_operator.cluster import Cluster
from flexserv_operator.config import Config, read_config
from flexserv_operator.errors import BadSettings, NotServed
from flexserv_operator.handlers import register
from flexserv_operator.log_lines import configure_logging, last_words
from flexserv_operator.metrics import Metrics
from flexserv_operator.reconcile import Reconciler

BAD_SETTINGS, NOT_SERVED = 2, 3


def main(arguments: Sequence[str]) -> int:
    """Run until SIGTERM or SIGINT. Returns the exit code: 2 for bad settings, 3 if there is nothing to
    watch yet."""
    try:
        config = read_config(arguments)
    except BadSettings as error:
        print(f"flexserv-operator: bad settings\n{error}", file=sys.stderr)
        return BAD_SETTINGS
    configure_logging(config.log_level, config.log_format)
    try:
        asyncio.run(operate(config))
    except NotServed as error:
        last_words(f"flexserv-operator: {error}")
        return NOT_SERVED
    return 0


async def operate(config: Config) -> None:
    """Put everything together and run it. Raises NotServed if FlexServModels cannot be listed."""
    api = await ApiServer.connect(config.namespace)
    await api.require_crd()
    metrics = Metrics()
    cluster = Cluster(config.namespace, config.backend_service, config.adopt_unreferenced)
    client = BackendClient(config.poll_timeout_seconds, config.admin_token_file)
    reconciler = Reconciler(config, cluster, api, client, metrics)
    registry = kopf.OperatorRegistry()
    register(registry, cluster, reconciler, api)
    settings = kopf.OperatorSettings()
    # Rights in one namespace only: kopf must not look for CRDs and namespaces that come and go.
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.networking.request_timeout = 30
    settings.watching.server_timeout = 240
    server, thread = start_http_server(config.metrics_port, registry=metrics.registry)
    try:
        await kopf.operator(
            registry=registry,
            settings=settings,
            standalone=True,
            namespaces=[config.namespace],
            liveness_endpoint=f"http://0.0.0.0:{config.health_port}/healthz",
        )
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=5)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
