"""What a client may name, for the list of models. Pure."""

from collections.abc import Iterable, Sequence

from hf_transformers_backend.residency.views import CatalogEntry, CatalogStatus, ResidencySnapshot


def catalog(
    now: ResidencySnapshot, known_names: Iterable[str], cached_models: Sequence[tuple[str, int]]
) -> list[CatalogEntry]:
    """Resident and loading models, then known names, then what is in the hub's cache; each name once."""
    entries: dict[str, tuple[CatalogStatus, int]] = {}
    for model in now.models:
        entries.setdefault(model.label, ("loaded", int(model.loaded_at)))
    for job in now.loading:
        entries.setdefault(job.label, ("loading", 0))
    for name in known_names:
        entries.setdefault(name, ("unloaded", 0))
    for name, changed_at in cached_models:
        entries.setdefault(name, ("unloaded", changed_at))
    return [
        CatalogEntry(name, status, _owner_of(name), created) for name, (status, created) in entries.items()
    ]


def _owner_of(name: str) -> str:
    """The organization of a hub id, as OpenAI's `owned_by`."""
    return name.split("/")[0] if "/" in name and not name.startswith("/") else "local"
