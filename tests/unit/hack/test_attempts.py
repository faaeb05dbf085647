"""What fetches from a network is tried again, and what does not end is not."""

import pytest
from lab.attempts import PAUSES, retry
from lab.errors import CommandError, MissingError, TookTooLong


class Fetch:
    """Fails so often, and then returns what it was asked for."""

    def __init__(self, failures: int, error: Exception | None = None) -> None:
        self.failures, self.error = failures, error or CommandError("pip: exit status 2\nconnection reset")
        self.tries = 0

    def __call__(self) -> str:
        self.tries += 1
        if self.tries <= self.failures:
            raise self.error
        return "fetched"


@pytest.mark.parametrize("failures", range(len(PAUSES) + 1))
def test_a_fetch_that_fails_is_tried_again_after_each_pause(
    failures: int, capsys: pytest.CaptureFixture[str]
) -> None:
    fetch, paused = Fetch(failures), list[float]()
    assert retry(fetch, paused.append) == "fetched"
    assert (fetch.tries, tuple(paused)) == (failures + 1, PAUSES[:failures])
    assert capsys.readouterr().err.count("failed, once more in") == failures


def test_the_last_failure_is_told() -> None:
    fetch = Fetch(99)
    with pytest.raises(CommandError, match="connection reset"):
        retry(fetch, lambda _: None)
    assert fetch.tries == len(PAUSES) + 1


@pytest.mark.parametrize("error", [TookTooLong("no end after 600 s"), MissingError("no pip here")])
def test_what_a_second_try_would_not_change_is_told_at_once(error: Exception) -> None:
    fetch = Fetch(99, error)
    with pytest.raises(type(error)):
        retry(fetch, lambda _: None)
    assert fetch.tries == 1
