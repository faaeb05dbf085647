"""What every client may count on, whoever raises the error."""

import pytest
from hf_transformers_backend.access import error_response
from hf_transformers_backend.errors import Busy, FlexServError, Unavailable


@pytest.mark.parametrize("error", [Busy("full"), Unavailable("not now", code="superseded")])
def test_a_refusal_that_passes_says_when_to_ask_again(error: FlexServError) -> None:
    for one in (error, error.copy()):
        assert int(error_response(one).headers["retry-after"]) >= 1


def test_who_raises_it_may_know_better() -> None:
    assert error_response(Unavailable("not now", retry_after=42)).headers["retry-after"] == "42"
