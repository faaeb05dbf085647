"""Whose the FlexServModels are that name no backend, where several operators of a namespace adopt such.
Pure.

The first operator to write a status wins: its Service stands in status.backend, and the others keep away for
as long as that Service exists. So no two operators load or write one model in turns, and a restart of one
loses it nothing to the other.
"""

from collections.abc import Container, Iterable

from flexserv_operator.desired import Model


def adopters(
    unreferenced: Iterable[tuple[Model, str | None]], own: str, services: Container[str]
) -> dict[str, str]:
    """The Service to whose operator each FlexServModel belongs, by uid, as the operator of `own` sees it.

    `unreferenced` are those without spec.backendRef, each with its status.backend; `services` are those that
    exist.
    """
    by_age = sorted(unreferenced, key=lambda entry: (entry[0].created, entry[0].name))
    claims = {
        model.uid: claim
        for model, claim in by_age
        # Without a Service of our own there is nothing to take a model over for.
        if claim and (claim == own or claim in services or own not in services)
    }
    # Whoever has the oldest one gets the new ones as well.
    first = next(iter(claims.values()), own)
    return {model.uid: claims.get(model.uid, first) for model, _ in by_age}
