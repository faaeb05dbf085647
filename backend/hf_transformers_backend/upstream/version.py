"""Refuses a transformers release whose serving internals this adapter was not written for."""

from importlib.metadata import PackageNotFoundError, version

SUPPORTED = (5, 24)


class UnsupportedTransformers(RuntimeError):
    """The installed transformers is missing or of another release line; the message says what to install."""


def check_transformers_version(installed: str | None = None) -> str:
    """Return the installed version if it is 5.24.x, else raise UnsupportedTransformers. Imports nothing
    heavy.
    """
    wanted = ".".join(map(str, SUPPORTED))
    remedy = f"install 'transformers=={wanted}.*'"
    if installed is None:
        try:
            installed = version("transformers")
        except PackageNotFoundError:
            raise UnsupportedTransformers(f"transformers is not installed; {remedy}") from None
    if tuple(installed.split(".")[:2]) != tuple(map(str, SUPPORTED)):
        raise UnsupportedTransformers(
            f"transformers {installed} is installed, this backend needs {wanted}.x; {remedy}"
        )
    return installed
