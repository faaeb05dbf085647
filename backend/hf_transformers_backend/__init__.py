"""FlexServ's backend: one process that serves many transformers models behind the OpenAI API."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("flexserv")
except PackageNotFoundError:  # run by path, without an installation
    __version__ = "0+source"
