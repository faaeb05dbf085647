"""When each alert fires, and when it does not: series in promtool's notation, one value a minute."""

from collections.abc import Mapping
from dataclasses import dataclass, field

Series = Mapping[str, str]

BACKEND = 'namespace="models",job="flexserv",pod="backend-0",instance="10.0.0.7:8001"'
SECOND = 'namespace="models",job="flexserv",pod="backend-1",instance="10.0.0.8:8001"'
OPERATOR = 'namespace="models",job="flexserv-operator",pod="operator-0",instance="10.0.0.9:9090"'
OF_BACKEND = {"namespace": "models", "job": "flexserv", "pod": "backend-0", "instance": "10.0.0.7:8001"}
OF_OPERATOR = {
    "namespace": "models",
    "job": "flexserv-operator",
    "pod": "operator-0",
    "instance": "10.0.0.9:9090",
}
POD = {"pod": "backend-0", "instance": "10.0.0.7:8001"}


@dataclass(frozen=True)
class Case:
    """Of the series `fires` the alert speaks at `at`, once, with these labels and this description; of each
    of `quiet` it says nothing at any time.
    """

    alert: str
    fires: Series
    at: str
    description: str
    labels: Mapping[str, str] = field(default_factory=dict)
    quiet: tuple[Series, ...] = ()


def requests(code: str, values: str, *, cold: str = "false", **more: str) -> Series:
    labels = f'{BACKEND},route="/v1/chat/completions",code="{code}",model="chat",cold="{cold}"'
    return {f"flexserv_request_duration_seconds_count{{{labels}}}": values}


def first_tokens(slow: str, all_: str, *, cold: str = "false") -> Series:
    """Cumulative: those up to 5 s, and all of them; the rest took up to 30 s."""
    name, labels = "flexserv_time_to_first_token_seconds", f'{BACKEND},model="chat",cold="{cold}"'
    return {
        f'{name}_bucket{{{labels},le="5"}}': slow,
        f'{name}_bucket{{{labels},le="30"}}': all_,
        f'{name}_bucket{{{labels},le="+Inf"}}': all_,
        f"{name}_count{{{labels}}}": all_,
    }


def pressure(values: str, *, resource: str = "ram", origin: str = "own") -> Series:
    return {f'flexserv_memory_pressure{{{BACKEND},resource="{resource}",origin="{origin}"}}': values}


def model_ready(values: str, residency: str = "Pinned") -> Series:
    labels = f'{OPERATOR},flexservmodel="chat",residency="{residency}"'
    return {f"flexserv_operator_model_ready{{{labels}}}": values}


def churn(evictions: str, loads: str, reason: str = "room") -> Series:
    return {
        f'flexserv_model_evictions_total{{{BACKEND},reason="{reason}"}}': evictions,
        f'flexserv_model_loads_total{{{BACKEND},outcome="loaded"}}': loads,
    }


def ready(first: str, second: str) -> Series:
    return {f"flexserv_ready{{{BACKEND}}}": first, f"flexserv_ready{{{SECOND}}}": second}


def cache_bytes(used: str, free: str) -> Series:
    return {
        f"flexserv_cache_used_bytes{{{BACKEND}}}": used,
        f"flexserv_cache_free_bytes{{{BACKEND}}}": free,
    }


def down(first: str, second: str = "_x80", *, quiet: tuple[Series, ...] = ()) -> Case:
    """Nobody answers, the readiness of the two pods being as told."""
    return Case(
        "FlexServBackendDown",
        fires=ready(first, second),
        at="25m",
        description=(
            "For 15m no backend of release flexserv in namespace models was up and ready; "
            "nobody gets an answer from its models."
        ),
        quiet=quiet,
    )


CASES = [
    down(
        "1+0x5 stale",
        "1+0x5 stale",
        quiet=(
            # A Recreate roll-out: no target at all for 6 minutes, and as many until its models are in.
            ready("1+0x5 stale", "_x11 0+0x6 1+0x60"),
            ready("0+0x80", "1+0x80"),
            ready("1+0x80", "_x80"),
        ),
    ),
    # Up, and not ready: a failed GPU, or no operator that says that it may be.
    down("1+0x5 0+0x80", "0+0x80"),
    # Restarted again and again, before it was ready.
    down("0+0x2 stale _x2 " * 16),
    Case(
        "FlexServBackendPodDown",
        fires={f"up{{{BACKEND}}}": "0+0x60", f"up{{{SECOND}}}": "1+0x60"},
        at="20m",
        description=(
            "backend-0 could not be scraped for 15m, while others of release flexserv in "
            "namespace models answer."
        ),
        labels=OF_BACKEND,
        quiet=(
            {f"up{{{BACKEND}}}": "0+0x60"},
            {f"up{{{BACKEND}}}": "0+0x10 1+0x60", f"up{{{SECOND}}}": "1+0x70"},
        ),
    ),
    Case(
        "FlexServBackendNotReady",
        fires={f"flexserv_ready{{{BACKEND}}}": "0+0x60"},
        at="45m",
        description="backend-0 has been up without being ready for 40m, so it gets no requests.",
        labels=OF_BACKEND,
        quiet=({f"flexserv_ready{{{BACKEND}}}": "0+0x35 1+0x60"},),
    ),
    Case(
        "FlexServMemoryReliefFailed",
        fires={f'flexserv_memory_exhausted{{{BACKEND},resource="vram"}}': "0+0x20 1 0+0x60"},
        at="25m",
        description=(
            "backend-0 is at its vram threshold, has nothing left to evict, and refused new "
            "work within the last 10 minutes."
        ),
        labels={**OF_BACKEND, "resource": "vram"},
        quiet=({f'flexserv_memory_exhausted{{{BACKEND},resource="vram"}}': "0+0x80"},),
    ),
    Case(
        "FlexServMemoryPressureLasts",
        fires=pressure("1+0x60", origin="external"),
        at="20m",
        description=(
            "backend-0 has been at its ram threshold for 15m; the memory is used by others, "
            "and evicting would not help."
        ),
        labels={**OF_BACKEND, "resource": "ram", "origin": "external"},
        quiet=(
            pressure("1+0x9 0+0x4 1+0x9 0+0x60", resource="vram"),
            # A full GPU, at its threshold's edge, is what the machine is for.
            {f'flexserv_gpu_memory_used_ratio{{{BACKEND},gpu="0"}}': "0.99+0x80"},
        ),
    ),
    Case(
        "FlexServModelChurn",
        fires=churn("0+0.5x120", "0+0.5x120"),
        at="90m",
        description=(
            "backend-0 evicted 30 models within an hour to make room, and loaded as many; the "
            "models in use do not fit together."
        ),
        labels=POD,
        quiet=(
            churn("0+0.1x120", "0+0.1x120"),
            churn("0+0.5x120", "0+0.5x120", "idle"),
            churn("0+0.5x120", "3+0x120"),
        ),
    ),
    Case(
        "FlexServModelLoadsFail",
        fires={f'flexserv_model_loads_total{{{BACKEND},outcome="failed"}}': "0+0x10 0+1x4 4+0x60"},
        at="30m",
        description="4 loads failed on backend-0 within an hour.",
        labels=POD,
        quiet=({f'flexserv_model_loads_total{{{BACKEND},outcome="failed"}}': "0+0x10 1+0x60 2+0x60"},),
    ),
    Case(
        "FlexServCollectorFailing",
        fires={f"flexserv_resources_collect_success{{{BACKEND}}}": "0+0x60"},
        at="20m",
        description=(
            "A sensor of backend-0 (a GPU, the memory or the cache's disk) has failed for "
            "15m; what it measured is missing, and eviction works without it."
        ),
        labels=OF_BACKEND,
        quiet=({f"flexserv_resources_collect_success{{{BACKEND}}}": "0+0x10 1 0+0x10 1+0x60"},),
    ),
    Case(
        "FlexServEventLoopBlocked",
        fires={f"flexserv_event_loop_lag_seconds{{{BACKEND}}}": "4+0x60"},
        at="15m",
        description=(
            "The event loop of backend-0 has been up to 4s late for 10 minutes, and every "
            "answer and probe with it."
        ),
        labels=OF_BACKEND,
        quiet=({f"flexserv_event_loop_lag_seconds{{{BACKEND}}}": "4+0x5 0.01+0x60"},),
    ),
    Case(
        "FlexServErrorShareHigh",
        fires={**requests("200", "0+80x60"), **requests("500", "0+20x60")},
        at="30m",
        description=(
            "20% of the requests to release flexserv in namespace models ended with 5xx in "
            "the last 10 minutes."
        ),
        quiet=(
            {**requests("200", "0+98x60"), **requests("503", "0+2x60")},
            {**requests("200", "0+80x60"), **requests("429", "0+20x60")},
            requests("500", "0+1x60"),  # all of them fail, and there are too few to call anybody
        ),
    ),
    Case(
        "FlexServFirstTokenSlow",
        fires=first_tokens("0+50x60", "0+60x60"),
        at="40m",
        description=(
            "One request in 20 to chat waits longer than 22.5s for its first token, although "
            "the model is loaded."
        ),
        labels={"model": "chat"},
        quiet=(
            first_tokens("0+60x60", "0+60x60"),
            first_tokens("0+50x60", "0+60x60", cold="true"),
            first_tokens("0+1x60", "0+2x60"),  # below the floor
        ),
    ),
    Case(
        "FlexServCacheNearlyFull",
        fires=cache_bytes("95+0x60", "5+0x60"),
        at="40m",
        description="95% of the cache of backend-0 is used; soon no new model can be downloaded.",
        labels=OF_BACKEND,
        quiet=(cache_bytes("85+0x60", "15+0x60"),),
    ),
    Case(
        "FlexServOperatorGone",
        fires={f"up{{{BACKEND}}}": "1+0x60"},
        at="20m",
        description=(
            "For 15m the operator of release flexserv in namespace models could not be "
            "scraped; a backend that restarts gets no model back."
        ),
        quiet=({f"up{{{OPERATOR}}}": "1+0x5 0+0x10 1+0x60"},),
    ),
    Case(
        "FlexServOperatorLoopStale",
        fires={f"flexserv_operator_last_cycle_timestamp_seconds{{{OPERATOR}}}": "0+60x10 600+0x3 840+60x60"},
        at="20m",
        description=(
            "The operator of release flexserv in namespace models finished no cycle for 4m "
            "30s within the last 15 minutes."
        ),
        labels=OF_OPERATOR,
        quiet=({f"flexserv_operator_last_cycle_timestamp_seconds{{{OPERATOR}}}": "0+60x80"},),
    ),
    Case(
        "FlexServModelQuarantined",
        fires={f"flexserv_operator_quarantined_models{{{OPERATOR}}}": "0+0x5 2+0x60"},
        at="10m",
        description=(
            "2 model(s) of release flexserv in namespace models are in quarantine, because a "
            "container died while it loaded them."
        ),
        labels=OF_OPERATOR,
        quiet=({f"flexserv_operator_quarantined_models{{{OPERATOR}}}": "0+0x60"},),
    ),
    Case(
        "FlexServPinnedModelNotReady",
        fires=model_ready("0+0x60"),
        at="40m",
        description=(
            "FlexServModel chat of release flexserv in namespace models is Pinned and has not "
            "been Ready for 30m."
        ),
        labels={**OF_OPERATOR, "flexservmodel": "chat", "residency": "Pinned"},
        quiet=(model_ready("0+0x80", "OnDemand"), model_ready("0+0x25 1+0x60")),
    ),
]
