"""The output items of a response: a message, a block of reasoning, a function call.

And the events of their lives.
"""

from typing import Any

from hf_transformers_backend.generation.identifiers import new_id

Json = dict[str, Any]


class OutputItem:
    """Begins, grows by deltas, ends. `value` is the item as it stands; `index` its place in the output."""

    def __init__(self, value: Json) -> None:
        self.index = 0
        self.value = value
        self._text = ""

    def begin(self) -> list[Json]:
        """The item appears, empty."""
        return [{"type": "response.output_item.added", "output_index": self.index, "item": dict(self.value)}]

    def delta(self, text: str) -> list[Json]:
        """The item grows by `text`."""
        raise NotImplementedError

    def end(self, status: str) -> list[Json]:
        """The item is done."""
        self.value["status"] = status
        return [{"type": "response.output_item.done", "output_index": self.index, "item": dict(self.value)}]

    def _place(self, type: str) -> Json:
        return {"type": type, "item_id": self.value["id"], "output_index": self.index}


class MessageItem(OutputItem):
    """The visible answer: a message with one text part."""

    def __init__(self) -> None:
        super().__init__(
            {
                "id": new_id("msg_"),
                "type": "message",
                "role": "assistant",
                "status": "in_progress",
                "content": [],
            }
        )

    def begin(self) -> list[Json]:
        """The message, then its part."""
        return [*super().begin(), self._part("response.content_part.added", part=self._content())]

    def delta(self, text: str) -> list[Json]:
        """More text."""
        self._text += text
        return [self._part("response.output_text.delta", delta=text, logprobs=[])]

    def end(self, status: str) -> list[Json]:
        """The text, the part, the message."""
        self.value["content"] = [self._content()]
        return [
            self._part("response.output_text.done", text=self._text, logprobs=[]),
            self._part("response.content_part.done", part=self._content()),
            *super().end(status),
        ]

    def _content(self) -> Json:
        return {"type": "output_text", "text": self._text, "annotations": [], "logprobs": []}

    def _part(self, type: str, **fields: Any) -> Json:
        return {**self._place(type), "content_index": 0, **fields}


class ReasoningItem(OutputItem):
    """What the model thought."""

    def __init__(self) -> None:
        super().__init__(
            {"id": new_id("rs_"), "type": "reasoning", "summary": [], "content": [], "status": "in_progress"}
        )

    def begin(self) -> list[Json]:
        """The block, then its part."""
        return [*super().begin(), self._part("response.content_part.added", part=self._content())]

    def delta(self, text: str) -> list[Json]:
        """More thoughts."""
        self._text += text
        return [self._part("response.reasoning_text.delta", delta=text)]

    def end(self, status: str) -> list[Json]:
        """The text, the part, the block."""
        self.value["content"] = [self._content()]
        return [
            self._part("response.reasoning_text.done", text=self._text),
            self._part("response.content_part.done", part=self._content()),
            *super().end(status),
        ]

    def _content(self) -> Json:
        return {"type": "reasoning_text", "text": self._text}

    def _part(self, type: str, **fields: Any) -> Json:
        return {**self._place(type), "content_index": 0, **fields}


class CallItem(OutputItem):
    """A call of one of the caller's functions."""

    def __init__(self, name: str) -> None:
        super().__init__(
            {
                "id": new_id("fc_"),
                "call_id": new_id("call_"),
                "type": "function_call",
                "name": name,
                "arguments": "",
                "status": "in_progress",
            }
        )

    def delta(self, text: str) -> list[Json]:
        """Arguments."""
        self.value["arguments"] += text
        return [{**self._place("response.function_call_arguments.delta"), "delta": text}]

    def end(self, status: str) -> list[Json]:
        """All arguments, the call."""
        done = {
            **self._place("response.function_call_arguments.done"),
            "name": self.value["name"],
            "arguments": self.value["arguments"],
        }
        return [done, *super().end(status)]
