"""Stop text never shows, whole or in part, however the text is cut into pieces; nothing else is lost."""

from hf_transformers_backend.generation.stop_text import StopText
from hypothesis import given
from hypothesis import strategies as st

TEXT = st.text(alphabet="abc", max_size=30)
STOPS = st.lists(st.text(alphabet="abc", min_size=1, max_size=4), max_size=4)


def shown(pieces: list[str], stops: list[str]) -> tuple[str, bool]:
    cutter = StopText(stops)
    text = "".join(cutter.feed(piece) for piece in pieces) + cutter.flush()
    return text, cutter.matched


def expected(text: str, stops: list[str]) -> tuple[str, bool]:
    """The text before the stop that is complete first; of two that end together, the longer."""
    for end in range(1, len(text) + 1):
        begins = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if begins:
            return text[: min(begins)], True
    return text, False


@given(text=TEXT, stops=STOPS)
def test_text_in_single_characters_is_cut_at_the_first_complete_stop(text: str, stops: list[str]) -> None:
    assert shown(list(text), stops) == expected(text, stops)


@given(pieces=st.lists(TEXT, max_size=6), stops=STOPS)
def test_no_stop_text_ever_shows(pieces: list[str], stops: list[str]) -> None:
    text, matched = shown(pieces, stops)
    assert not any(stop in text for stop in stops)
    assert matched == any(stop in "".join(pieces) for stop in stops)
    assert "".join(pieces).startswith(text)


def test_the_beginning_of_a_stop_is_held_back_until_it_is_refuted() -> None:
    cutter = StopText(["END"])
    assert [cutter.feed(piece) for piece in ("a", "E", "N", "x")] == ["a", "", "", "ENx"]


def test_what_was_held_back_comes_out_at_the_end() -> None:
    cutter = StopText(["END"])
    assert cutter.feed("so EN") == "so "
    assert cutter.flush() == "EN"
    assert not cutter.matched
