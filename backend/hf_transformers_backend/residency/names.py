"""From the name that a caller sends to the identity that residency knows. Pure."""

from hf_transformers_backend.errors import BadRequest
from hf_transformers_backend.identity import Kind, ModelIdentity

MAX_NAME_LENGTH = 512


def parse_name(name: str, kind: Kind, param: str = "model") -> ModelIdentity:
    """`id` or `id@revision`; a path has no revision, an `@` is part of it. BadRequest for what can be no
    model.
    """
    check_name(name, param)
    if name.startswith("/"):
        return ModelIdentity(plain_path(name), kind)
    model_id, at, revision = name.partition("@")
    if not model_id:
        raise BadRequest(f"{param}: '{name}' names no model before the '@'", param=param)
    if at and not revision:
        raise BadRequest(f"{param}: '{name}' names no revision after the '@'", param=param)
    return ModelIdentity(model_id, kind, revision or None)


def plain_path(name: str) -> str:
    """A path in the one form under which its model is known: `/a/./b//` is `/a/b`. Other names stay."""
    if not name.startswith("/"):
        return name
    return "/" + "/".join(part for part in name.split("/") if part not in ("", "."))


def check_name(name: str, param: str = "model") -> None:
    """BadRequest unless `name` can be a hub id or an absolute path."""
    if not name or name != name.strip() or len(name) > MAX_NAME_LENGTH or not name.isprintable():
        raise BadRequest(
            f"{param}: must be a model's name of 1 to {MAX_NAME_LENGTH} printable characters", param=param
        )
    if "://" in name:
        raise BadRequest(
            f"{param}: '{name}' is a URL; give a hub id (owner/name) or an absolute path", param=param
        )
    if ".." in name.split("/") or name.startswith(("./", "~")):
        raise BadRequest(
            f"{param}: '{name}' is a relative path; give a hub id (owner/name) or an absolute path",
            param=param,
        )
