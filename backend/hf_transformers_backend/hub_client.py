"""The HTTP client under huggingface_hub: every call has a timeout, and no wait is as long as a hub likes."""

from functools import cache

import httpx2
from huggingface_hub import HfApi, set_client_factory
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils._http import default_client_factory

TIMEOUT_SECONDS = 30.0
"""For calls that huggingface_hub gives no timeout of their own."""
ANSWER_SECONDS = 10.0
"""How long the hub may take to say that it is there."""
LONGEST_PAUSE_SECONDS = 5
"""Before a call that was refused for the rate is made again; there are at most five such pauses."""


@cache
def use_bounded_client() -> None:
    """For all that huggingface_hub does in this process from now on. Once: a change ends its connections."""
    set_client_factory(_bounded_client)


def is_away(repository: str, revision: str | None) -> bool:
    """Whether the hub cannot say now what is in a repository: unreachable, failing, or refusing for the rate.

    Raises what the hub says about the repository itself: that it is missing, or gated.
    """
    try:
        HfApi().model_info(repository, revision=revision, timeout=ANSWER_SECONDS)
    except (GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError):
        raise
    except HfHubHTTPError as error:
        if error.response.status_code == 429 or error.response.status_code >= 500:
            return True
        raise
    except httpx2.TransportError:
        return True
    return False


def _bounded_client() -> httpx2.Client:
    client = default_client_factory()
    client.timeout = httpx2.Timeout(TIMEOUT_SECONDS)
    hooks = client.event_hooks
    client.event_hooks = {**hooks, "response": [*hooks.get("response", []), _shorten_pause]}
    return client


def _shorten_pause(response: httpx2.Response) -> None:
    """A retry waits for as long as these headers say."""
    if response.status_code == 429:
        asked = response.headers.get("retry-after", "1")
        pause = min(int(asked), LONGEST_PAUSE_SECONDS) if asked.isdigit() else LONGEST_PAUSE_SECONDS
        response.headers["retry-after"] = str(pause)
        response.headers.pop("ratelimit", None)
