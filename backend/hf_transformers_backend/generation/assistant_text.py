"""From token ids to deltas: decode, take reasoning and tool calls apart, cut at the stop text.

Pure and synchronous.
"""

from collections.abc import Iterable, Sequence

from hf_transformers_backend.generation.detokenizer import Detokenizer
from hf_transformers_backend.generation.events import Delta, ReasoningDelta, TextDelta, ToolCall
from hf_transformers_backend.generation.stop_text import StopText
from hf_transformers_backend.upstream.parsing import AssistantParser, Parsed


class AssistantText:
    """One answer in the making. `finished` turns true when nothing that follows may be shown."""

    def __init__(
        self,
        detokenizer: Detokenizer,
        parser: AssistantParser | None,
        *,
        stop: Sequence[str] = (),
        most_tool_calls: int | None = None,
    ) -> None:
        self._detokenizer = detokenizer
        self._parser = parser
        self._stop = StopText(stop)
        self._most_tool_calls = most_tool_calls
        self._content = _Trimmed()
        self._reasoning = _Trimmed()
        self.tool_calls = 0
        self.finished = False

    def start(self) -> list[Delta]:
        """What the prompt has already begun of the answer, such as an opened block of reasoning."""
        return self._show(self._parser.opening) if self._parser is not None else []

    def feed(self, token: int) -> list[Delta]:
        """The deltas that one more token completes."""
        if self.finished:
            return []
        text = self._detokenizer.feed(token)
        if not text:
            return []
        if self._parser is None:
            return self._visible(text)
        return self._show(self._parser.feed(text))

    def finish(self) -> list[Delta]:
        """All that was held back, once the last token is in."""
        if self.finished:
            return []
        text = self._detokenizer.flush()
        if self._parser is None:
            deltas = self._visible(text)
        else:
            deltas = self._show([*self._parser.feed(text), *self._parser.finish()])
        rest = self._stop.flush()
        return [*deltas, TextDelta(rest)] if rest else deltas

    def _show(self, pieces: Iterable[Parsed]) -> list[Delta]:
        deltas: list[Delta] = []
        for piece in pieces:
            if self.finished:
                break
            if piece.kind == "content":
                deltas += self._visible(self._content.feed(piece.text))
            elif piece.kind == "reasoning":
                text = self._reasoning.feed(piece.text)
                deltas += [ReasoningDelta(text)] if text else []
            else:
                self.tool_calls += 1
                deltas.append(ToolCall(piece.name, piece.text))
                self.finished = self.tool_calls == self._most_tool_calls
        return deltas

    def _visible(self, text: str) -> list[Delta]:
        shown = self._stop.feed(text) if text else ""
        self.finished = self.finished or self._stop.matched
        return [TextDelta(shown)] if shown else []


class _Trimmed:
    """Parsed fields lose the white space around them, as upstream's whole-message parser has it."""

    def __init__(self) -> None:
        self._space = ""
        self._begun = False

    def feed(self, text: str) -> str:
        body = text.rstrip()
        if not body:
            self._space += text if self._begun else ""
            return ""
        shown = self._space + body if self._begun else body.lstrip()
        self._space = text[len(body) :]
        self._begun = True
        return shown
