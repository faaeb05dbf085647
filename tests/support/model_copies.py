"""Copies of the small models with something of a test's own: a chat template, another use."""

import json
from pathlib import Path
from typing import Any

from tests.support.models import model_path

TELLTALE = (
    "{%- if reveal is defined %}{{ raise_exception('SEEN=' ~ {"
    "'tag': tag is defined and tag, 'style': style is defined and style, "
    "'enable_thinking': enable_thinking if enable_thinking is defined else 'unset'} | tojson) }}{% endif -%}"
    "{%- for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{%- else %}{% for part in message['content'] %}"
    "{{ '<image>' if part['type'] == 'image' else part['text'] }}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{{ tag if tag is defined }}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking %}<think>\n{% endif %}"
)
"""Prints `tag` and opens a block of thinking. With `reveal` it refuses, and says what it was given."""

THINKING = {
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "reasoning_content": {"open": "<think>", "close": "</think>", "content": "text"},
        "content": {"close_pattern": r"\s*(?:<\|im_end\|>|<\|endoftext\|>)", "content": "text"},
    },
}
"""How upstream takes reasoning and content apart."""


def telltale_model(name: str, folder: Path) -> str:
    """The model `name` in `folder`, with the template above and reasoning in its answers."""
    original = Path(model_path(name))
    model_with_template(name, folder, TELLTALE)
    tokenizer: dict[str, Any] = json.loads((original / "tokenizer_config.json").read_text())
    tokenizer["response_template"] = {"defaults": {"role": "assistant"}, **THINKING}
    _replace(folder / "tokenizer_config.json", json.dumps(tokenizer))
    return str(folder)


def model_with_template(name: str, folder: Path, template: str) -> str:
    """The model `name` in `folder`, with another chat template."""
    folder.mkdir()
    for file in Path(model_path(name)).iterdir():
        (folder / file.name).symlink_to(file)
    _replace(folder / "chat_template.jinja", template)
    return str(folder)


def encoder_of(name: str, folder: Path) -> str:
    """The generative model `name` in `folder`, made to encode: it says so, and pools its last token."""
    for file in Path(model_path(name)).iterdir():
        (folder / file.name).symlink_to(file)
    modules = [
        {"idx": i, "name": str(i), "path": "1" * i, "type": f"sentence_transformers.models.{kind}"}
        for i, kind in enumerate(("Transformer", "Pooling"))
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    width = json.loads((folder / "config.json").read_text())["hidden_size"]
    (folder / "1").mkdir()
    (folder / "1" / "config.json").write_text(
        json.dumps({"word_embedding_dimension": width, "pooling_mode_lasttoken": True})
    )
    return str(folder)


def _replace(link: Path, text: str) -> None:
    link.unlink(missing_ok=True)
    link.write_text(text)
