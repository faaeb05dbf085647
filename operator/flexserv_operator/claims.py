"""Many FlexServModels, one claim per model. Pure.

Several FlexServModels may name one model. They are merged (pinned over not, longer idle timeout, higher
priority); where they cannot both have their way (load-time settings, names) the oldest wins, and the other is
in conflict.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from flexserv_operator.desired import Claim, Desired, Model
from flexserv_operator.inventory import Identity, Kind


def merge(namespace: str, models: Iterable[Model], foreign: Iterable[str] = ()) -> Desired:
    """One claim per model out of all FlexServModels of one backend; the oldest has the first word."""
    by_age = sorted(models, key=lambda model: (model.created, model.name))
    claims: dict[Identity, Claim] = {}
    conflicts: dict[str, str] = {}
    names: dict[str, Model] = {}
    plain: dict[tuple[Kind, str], Model] = {}
    for model in by_age:
        claim = claims.get(model.identity)
        problem = _name_problem(model, names, plain) or (claim and _settings_problem(model, claim))
        if problem:
            conflicts[model.uid] = problem
            continue
        claims[model.identity] = _join(claim, model) if claim else _claim(model)
        plain.setdefault((model.identity.kind, model.identity.model_id), model)
        if model.served_name:
            names.setdefault(model.served_name, model)
    return Desired(
        namespace=namespace,
        models={model.uid: model for model in by_age},
        foreign=frozenset(foreign),
        claims=tuple(claims.values()),
        conflicts=conflicts,
    )


def _name_problem(
    model: Model, names: Mapping[str, Model], plain: Mapping[tuple[Kind, str], Model]
) -> str | None:
    """Why clients could not address this model, if so: every name means one model only."""
    served, identity = model.served_name, model.identity
    if served:
        taken = names.get(served) or plain.get(("serve", served)) or plain.get(("embedding", served))
        if taken and taken.identity != identity:
            return (
                f"spec.servedName {served!r} is taken by the older FlexServModel {taken.name};"
                " choose another name"
            )
    elif not identity.revision:
        taken = plain.get((identity.kind, identity.model_id)) or names.get(identity.model_id)
        if taken and taken.identity != identity:
            return (
                f"the name {identity.model_id!r} is taken by the older FlexServModel {taken.name};"
                " set spec.servedName, so that clients can tell the two apart"
            )
    return None


def _settings_problem(model: Model, claim: Claim) -> str | None:
    """Why this model cannot share one copy in memory with the older claim, if so."""
    different = [
        key
        for key, value in model.load_settings.items()
        if key not in claim.load_settings or claim.load_settings[key] != value
    ]
    if model.served_name and claim.served_name not in (None, model.served_name):
        different.append("served name")
    if model.chat_template_kwargs is not None and claim.chat_template_kwargs not in (
        None,
        model.chat_template_kwargs,
    ):
        different.append("chat template arguments")
    if not different:
        return None
    older = claim.owner.partition("#")[0]
    return (
        f"the older FlexServModel {older} serves the same model with another {', '.join(different)};"
        " make the two equal, or delete one"
    )


def _claim(model: Model) -> Claim:
    return Claim(
        identity=model.identity,
        owner=model.owner,
        generation=model.generation,
        served_name=model.served_name,
        pinned=model.pinned,
        priority=model.priority,
        idle_timeout=model.idle_timeout,
        load_timeout=model.load_timeout,
        load_settings=model.load_settings,
        chat_template_kwargs=model.chat_template_kwargs,
        claimants=(model.uid,),
    )


def _join(claim: Claim, model: Model) -> Claim:
    pinned = claim.pinned or model.pinned
    return replace(
        claim,
        served_name=claim.served_name or model.served_name,
        pinned=pinned,
        priority=max(claim.priority, model.priority),
        idle_timeout=None if pinned else _longer(claim.idle_timeout, model.idle_timeout),
        load_timeout=max(claim.load_timeout, model.load_timeout),
        chat_template_kwargs=(
            model.chat_template_kwargs if claim.chat_template_kwargs is None else claim.chat_template_kwargs
        ),
        claimants=(*claim.claimants, model.uid),
    )


def _longer(one: int | None, other: int | None) -> int | None:
    """The longer idle timeout: 0 is for ever; None is the backend's default and gives way to a number."""
    if 0 in (one, other):
        return 0
    return max((value for value in (one, other) if value is not None), default=None)
