"""The program: settings, application, server. Runs installed, or by path from a checkout."""

import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    # The folder of this file must not be searched: its modules would shadow others of the same name.
    sys.path[:] = [
        entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent
    ]

from hf_transformers_backend import heap
from hf_transformers_backend.errors import BadRequest
from hf_transformers_backend.log_lines import adopt_loggers_of_libraries, configure_logging, last_words
from hf_transformers_backend.residency.directory import Directory
from hf_transformers_backend.settings import PROGRAM, Settings, settings_or_exit
from hf_transformers_backend.upstream.version import UnsupportedTransformers, check_transformers_version

BACKLOG = 2048


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until a signal; the exit code is 0 after a clean stop, 2 if the settings cannot be used."""
    settings = settings_or_exit(sys.argv[1:] if argv is None else argv)
    configure_logging(settings.log_level, settings.log_format)
    leave_when_told()
    heap.set_up()
    # By default CUDA numbers the fastest GPU first, and NVML, which tells how full they are, by PCI bus.
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    try:
        check_transformers_version()
        Directory.check(settings)
        if settings.device not in ("auto", "cpu"):
            from hf_transformers_backend.upstream.placement import check_device

            check_device(settings.device)
        if settings.chat_template_kwargs:
            from hf_transformers_backend.generation.template import check_template_names

            check_template_names(settings.chat_template_kwargs, "--chat-template-kwargs")
        listener = open_socket(settings)
    except (UnsupportedTransformers, BadRequest, OSError) as error:
        reason = getattr(error, "strerror", None) or error
        where = (
            f"cannot listen on {settings.host}:{settings.port} (--host, --port): "
            if isinstance(error, OSError)
            else ""
        )
        last_words(f"{PROGRAM}: error: {where}{reason}")
        return 2
    return serve(settings, listener)


def serve(settings: Settings, listener: socket.socket) -> int:
    """Build the application and run it on `listener`."""
    import uvicorn

    from hf_transformers_backend.app import build_app
    from hf_transformers_backend.connection import Connection
    from hf_transformers_backend.server import DrainingServer

    app = build_app(settings)
    adopt_loggers_of_libraries()
    # What the imports made stays for good. Leaving it out makes the collection at each unload short: it stops
    # all threads.
    gc.collect()
    gc.freeze()
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        log_config=None,
        access_log=False,
        backlog=BACKLOG,
        server_header=False,
    )
    server = DrainingServer(config, app.state.backend)
    server.run(sockets=[listener])
    server.ended()
    return 0


def leave_when_told() -> None:
    """Until the server takes over the signals there is nothing to finish: end at once.

    The imports take seconds, and a first process of a container ignores a signal that it has no handler for.
    """

    def leave(number: int, _frame: object) -> None:
        logging.getLogger(__name__).info("%s before the start was done", signal.Signals(number).name)
        logging.shutdown()
        os._exit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)


def open_socket(settings: Settings) -> socket.socket:
    """Bind first, so that a taken port is one line on stderr and nothing has been started."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # With the protocol named, asyncio sends at once (TCP_NODELAY): else the second part of an answer waits
    # 40 ms for the client's acknowledgement of the first.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((settings.host, settings.port))
    except OSError:
        listener.close()
        raise
    return listener


if __name__ == "__main__":
    exit_code = main()
    # Tearing down torch's modules takes the interpreter seconds; everything that is ours has ended.
    logging.shutdown()
    sys.stdout.flush()
    os._exit(exit_code)
